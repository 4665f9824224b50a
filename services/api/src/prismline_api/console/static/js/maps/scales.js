// Colour scales: convert a value to a place between 0 and 1, and the place to a colour.

// Evenly spaced colours of each scale, in hex. viridis and cividis are matplotlib's (CC0), with 33 colours. People with
// any colour vision can order them. `difference` goes from blue over light grey (zero) to vermilion.
const ANCHORS = {
  viridis:
    "440154470d6048186a482374472d7b4537814240863e49893b528b375b8d33638d2f6b8e2c728e297a8e26828e23898e" +
    "21918c1f988b1fa08822a78528ae8032b67a3fbc734ec36b5ec96270cf5784d44b98d83eaddc30c2df23d8e219ece51b" +
    "fde725",
  cividis:
    "00224e00285b002e6a0533711a386f273e6e32436d3b496c434e6c4b546c535a6d5a5f6e61656f686a716f7073767676" +
    "7d7c788482798c8878938e789b9476a39a74aba072b4a76fbcae6cc4b468cdbb63d5c25edec958e7d150f0d846f9e03a" +
    "fee838",
  grey: "000000ffffff",
  difference: "004f7c0072b256a9d9f2f2f2f0a46bd55e008c3e00",
  // The states of chunks in the order of their values: completed, pending, in progress, failed.
  states: "009e738c95a10072b2d55e00",
};

export const SCALES = ["viridis", "cividis", "grey"];
export const STRETCHES = ["linear", "log", "asinh"];
// Number of colours in a table.
const SIZE = 256;

// The colours of a scale as 32-bit pixels of ImageData (little-endian ABGR).
export function colours(name, invert = false) {
  const hex = ANCHORS[name];
  const n = hex.length / 6;
  const anchor = (index, part) => parseInt(hex.slice(6 * index + 2 * part, 6 * index + 2 * part + 2), 16);
  const table = new Uint32Array(SIZE);
  for (let i = 0; i < SIZE; i += 1) {
    const place = ((invert ? SIZE - 1 - i : i) / (SIZE - 1)) * (n - 1);
    const low = Math.min(Math.floor(place), n - 2);
    const rgb = [0, 1, 2].map((part) =>
      Math.round(anchor(low, part) + (place - low) * (anchor(low + 1, part) - anchor(low, part))),
    );
    table[i] = (255 << 24) | (rgb[2] << 16) | (rgb[1] << 8) | rgb[0];
  }
  return table;
}

// The colour at a place between 0 and 1, in CSS.
export function css(table, place) {
  const pixel = table[Math.max(0, Math.min(SIZE - 1, Math.round(place * (SIZE - 1))))];
  return `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;
}

// The stretch between two limits: a function from values to places, and its inverse. For `log`, a lower limit that is
// not positive is replaced by a thousandth of the upper one. `asinh` is linear near zero and logarithmic far from it.
export function stretch(kind, low, high) {
  let forward = (value) => value;
  let back = forward;
  if (kind === "log") {
    const floor = low > 0 ? low : Math.max(high, Number.MIN_VALUE) / 1000;
    forward = (value) => Math.log(Math.max(value, floor));
    back = Math.exp;
  } else if (kind === "asinh") {
    const soft = Math.max(Math.abs(low), Math.abs(high)) / 20 || 1;
    forward = (value) => Math.asinh(value / soft);
    back = (value) => soft * Math.sinh(value);
  }
  const from = forward(low);
  const span = forward(high) - from || 1;
  return { place: (value) => (forward(value) - from) / span, value: (place) => back(from + place * span) };
}

// The image of a tile. The highest row is first, as on a canvas. NaN is transparent.
export function paint(values, width, height, table, scale) {
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let row = 0; row < height; row += 1) {
    let at = (height - 1 - row) * width;
    for (let from = row * width; from < (row + 1) * width; from += 1, at += 1) {
      const value = values[from];
      if (!Number.isNaN(value)) {
        const place = scale.place(value) * (SIZE - 1);
        pixels[at] = table[place < 0 ? 0 : place > SIZE - 1 ? SIZE - 1 : Math.round(place)];
      }
    }
  }
  return image;
}

// A number with five significant digits.
export function shown(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(3);
  return String(Number(value.toPrecision(5)));
}

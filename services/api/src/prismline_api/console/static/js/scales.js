// Colour scales for numbers. Both grow evenly in lightness, so they also read without colour.

// Control points of viridis, by Stéfan van der Walt and Nathaniel Smith (CC0), as red, green and blue.
const VIRIDIS = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50],
  [253, 231, 37],
];

// The colour at `share`, from 0 to 1, as [red, green, blue].
export function viridis(share) {
  const place = Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1);
  const index = Math.min(VIRIDIS.length - 2, Math.floor(place));
  const part = place - index;
  return VIRIDIS[index].map((value, channel) => Math.round(value + part * (VIRIDIS[index + 1][channel] - value)));
}

export const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

// A colour of the style sheet, as [red, green, blue].
export function named(name, element = document.documentElement) {
  const text = getComputedStyle(element).getPropertyValue(name).trim();
  const value = parseInt(text.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

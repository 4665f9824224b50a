// Celestial coordinates of pixels, interpolated on the lattice that /runs/{id}/sky gives.
export class Sky {
  constructor(lattice) {
    this.lattice = lattice;
  }

  // Longitude and latitude in degrees, or null off the projection.
  at(x, y) {
    const { x: xs, y: ys, longitude, latitude } = this.lattice;
    const [j, u] = between(xs, x);
    const [i, v] = between(ys, y);
    const corners = [
      [i, j],
      [i, j + 1],
      [i + 1, j],
      [i + 1, j + 1],
    ].map(([row, column]) => {
      const [r, c] = [Math.min(row, ys.length - 1), Math.min(column, xs.length - 1)];
      return [longitude[r][c], latitude[r][c]];
    });
    if (corners.some(([one]) => one === null)) return null;
    const weights = [(1 - u) * (1 - v), u * (1 - v), (1 - u) * v, u * v];
    const first = corners[0][0];
    let [lon, lat] = [0, 0];
    corners.forEach(([l, b], index) => {
      lon += weights[index] * (first + ((((l - first + 180) % 360) + 360) % 360) - 180); // across 0°
      lat += weights[index] * b;
    });
    return [((lon % 360) + 360) % 360, lat];
  }

  text(x, y) {
    const found = this.at(x, y);
    if (!found) return "off the projection";
    return `${this.lattice.longitude_name} ${found[0].toFixed(4)}°, ${this.lattice.latitude_name} ${signed(found[1])}°`;
  }
}

const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(4);

// The index of the interval of ascending `places` that holds `value`, and the relative position in it, 0 to 1.
function between(places, value) {
  let index = 0;
  while (index < places.length - 2 && places[index + 1] <= value) index += 1;
  if (places.length < 2) return [0, 0];
  return [index, (value - places[index]) / (places[index + 1] - places[index])];
}

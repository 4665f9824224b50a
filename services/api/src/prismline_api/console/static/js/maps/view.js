// The visible part of a map, and the chosen pixel. Several maps may share one view: they move together.

// Maximum number of CSS pixels per pixel of the map. A tiny map may have four times the scale that shows it completely.
const MOST_SCALE = 64;

export class View extends EventTarget {
  /**
   * @param {number} nx
   * @param {number} ny
   */
  constructor(nx, ny) {
    super();
    this.nx = nx;
    this.ny = ny;
    this.x = nx / 2;
    this.y = ny / 2;
    /** @type {number | null} CSS pixels for each pixel of the map; null until a canvas shows it */
    this.scale = null;
    /** @type {number | null} the scale that shows the whole map */
    this.least = null;
    /** @type {[number, number] | null} the chosen pixel */
    this.pixel = null;
    /** @type {[number, number] | null} the pixel under the pointer */
    this.hover = null;
  }

  /**
   * Call `act` with what has changed.
   * @param {(what: "view" | "pixel" | "hover") => void} act
   */
  onChange(act) {
    this.addEventListener("change", (event) => act(/** @type {CustomEvent} */ (event).detail));
  }

  /** @param {"view" | "pixel" | "hover"} what */
  changed(what) {
    this.dispatchEvent(new CustomEvent("change", { detail: what }));
  }

  // Show the whole map in a canvas of this size.
  fit(width, height) {
    this.x = this.nx / 2;
    this.y = this.ny / 2;
    this.scale = Math.min(width / this.nx, height / this.ny);
    this.least = this.scale;
    this.changed("view");
  }

  move(dx, dy) {
    this.x = Math.max(0, Math.min(this.nx, this.x + dx));
    this.y = Math.max(0, Math.min(this.ny, this.y + dy));
    this.changed("view");
  }

  // Zoom by a factor. The point (x, y) of the map stays at the same place on the screen.
  zoom(factor, x = this.x, y = this.y) {
    const [least, most] = [(this.least ?? 0.01) / 2, Math.max(MOST_SCALE, 4 * (this.least ?? 0))];
    const scale = Math.max(least, Math.min(most, this.scale * factor));
    const ratio = this.scale / scale;
    this.scale = scale;
    this.x = Math.max(0, Math.min(this.nx, x + (this.x - x) * ratio));
    this.y = Math.max(0, Math.min(this.ny, y + (this.y - y) * ratio));
    this.changed("view");
  }

  /**
   * Choose a pixel. `follow`: the size of the canvas, in which the pixel is moved into view.
   * @param {number} x
   * @param {number} y
   * @param {{follow?: {width: number, height: number} | null}} [options]
   */
  choose(x, y, { follow = null } = {}) {
    /** @type {[number, number]} */
    const pixel = [Math.max(0, Math.min(this.nx - 1, x)), Math.max(0, Math.min(this.ny - 1, y))];
    if (this.pixel && pixel[0] === this.pixel[0] && pixel[1] === this.pixel[1]) return;
    this.pixel = pixel;
    if (follow) {
      const [reachX, reachY] = [follow.width / 2 / this.scale, follow.height / 2 / this.scale];
      if (Math.abs(pixel[0] + 0.5 - this.x) > reachX) this.x = pixel[0] + 0.5;
      if (Math.abs(pixel[1] + 0.5 - this.y) > reachY) this.y = pixel[1] + 0.5;
    }
    this.changed("pixel");
  }

  /** @param {[number, number] | null} pixel */
  point(pixel) {
    this.hover = pixel;
    this.changed("hover");
  }
}

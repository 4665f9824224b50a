// A map on a canvas: draws the tiles in view, and handles pointer, wheel and keys.
import { colours, paint, stretch } from "./scales.js";

const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
// A pointer that moves further than this drags the map, in CSS pixels.
const DRAG_PIXELS = 4;

export class MapCanvas {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {import("./view.js").View} view
   * @param {{colours: string, invert: boolean, stretch: string, low: number, high: number}} style
   */
  constructor(canvas, view, style) {
    this.canvas = canvas;
    this.view = view;
    this.style = style;
    /** @type {any} a TileSource or a DifferenceSource */
    this.source = null;
    /** @type {number | null} */
    this.frame = null;
    /** @type {Map<number, PointerEvent>} */
    this.pointers = new Map();
    /** @type {PointerEvent | null} the event that began the movement of a pointer */
    this.start = null;
    this.dragged = false;
    /** @type {Uint32Array | null} */
    this.table = null;
    this.ratio = 1;
    // The height of the map at full width, within the limits of the style sheet.
    canvas.style.aspectRatio = `${view.nx} / ${view.ny}`;
    new ResizeObserver(() => this.resize()).observe(canvas);
    view.addEventListener("change", () => this.draw());
    document.addEventListener("prismline-theme", () => this.draw());
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.moved(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => this.view.point(null));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.resize();
  }

  show(source, style) {
    this.source = source;
    this.style = style;
    this.table = null;
    this.draw();
  }

  get size() {
    return { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
  }

  resize() {
    const { width, height } = this.size;
    if (!width || !height) return;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.ratio = ratio;
    this.view.least = Math.min(width / this.view.nx, height / this.view.ny);
    if (this.view.scale === null) this.view.fit(width, height);
    this.draw();
  }

  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paintNow();
    });
  }

  /**
   * The position of a point of the map on the canvas, in pixels of the canvas. On the map, y points up.
   * @param {number} x
   * @param {number} y
   * @returns {[number, number]}
   */
  place(x, y) {
    const scale = this.view.scale * this.ratio;
    return [this.canvas.width / 2 + (x - this.view.x) * scale, this.canvas.height / 2 - (y - this.view.y) * scale];
  }

  /**
   * The point of the map under an event.
   * @param {{clientX: number, clientY: number}} event
   * @returns {[number, number]}
   */
  under(event) {
    const box = this.canvas.getBoundingClientRect();
    return [
      this.view.x + (event.clientX - box.left - box.width / 2) / this.view.scale,
      this.view.y - (event.clientY - box.top - box.height / 2) / this.view.scale,
    ];
  }

  paintNow() {
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!this.source || this.view.scale === null) return;
    const { levels } = this.source.about;
    // A coarser level would show as blocks, a finer one would cost time.
    const wanted = Math.max(0, Math.min(levels - 1, Math.floor(-Math.log2(this.view.scale * this.ratio))));
    this.table ??= colours(this.style.colours, this.style.invert);
    const scale = stretch(this.style.stretch, this.style.low, this.style.high);
    this.level(context, levels - 1, scale);
    if (wanted < levels - 1) this.level(context, wanted, scale);
    this.marks(context);
  }

  level(context, level, scale) {
    const { nx, ny, tile_pixels: pixels } = this.source.about;
    const side = pixels * 2 ** level;
    const [reachX, reachY] = [this.canvas.width, this.canvas.height].map(
      (length) => length / 2 / this.view.scale / this.ratio,
    );
    const range = (middle, reach, length) => [
      Math.max(0, Math.floor((middle - reach) / side)),
      Math.min(Math.ceil(length / side) - 1, Math.floor((middle + reach) / side)),
    ];
    const [left, right] = range(this.view.x, reachX, nx);
    const [bottom, top] = range(this.view.y, reachY, ny);
    for (let row = bottom; row <= top; row += 1) {
      for (let column = left; column <= right; column += 1) {
        const tile = this.source.find(level, column, row);
        if (tile) this.tile(context, tile, side, scale);
      }
    }
  }

  tile(context, tile, side, scale) {
    // The painted tile is cached with its look, because two canvases may show one tile.
    const look = [this.style.colours, this.style.invert, this.style.stretch, this.style.low, this.style.high].join();
    if (tile.painted?.look !== look) {
      const canvas = document.createElement("canvas");
      canvas.width = tile.width;
      canvas.height = tile.height;
      canvas.getContext("2d").putImageData(paint(tile.values, tile.width, tile.height, this.table, scale), 0, 0);
      tile.painted = { look, canvas };
    }
    const step = 2 ** tile.level;
    const [x0, y1] = this.place(tile.column * side, tile.row * side + tile.height * step).map(Math.round);
    const [x1, y0] = this.place(tile.column * side + tile.width * step, tile.row * side).map(Math.round);
    context.save();
    context.beginPath(); // the last pixel of a coarse level may cover less than a whole block
    const [right, top] = this.place(this.source.about.nx, this.source.about.ny);
    context.rect(...this.place(0, this.source.about.ny), right - this.place(0, 0)[0], this.place(0, 0)[1] - top);
    context.clip();
    context.clearRect(x0, y1, x1 - x0, y0 - y1);
    context.drawImage(tile.painted.canvas, x0, y1, x1 - x0, y0 - y1);
    context.restore();
  }

  marks(context) {
    const style = getComputedStyle(this.canvas);
    const [left, top] = this.place(0, this.view.ny);
    const [right, bottom] = this.place(this.view.nx, 0);
    context.lineWidth = 1;
    context.strokeStyle = style.getPropertyValue("--line");
    context.strokeRect(left - 0.5, top - 0.5, right - left + 1, bottom - top + 1);
    const box = (pixel, colour, width) => {
      const [x, y] = this.place(pixel[0], pixel[1] + 1);
      const size = Math.max(this.view.scale * this.ratio, 7 * this.ratio);
      const shift = (size - this.view.scale * this.ratio) / 2;
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.strokeRect(x - shift, y - shift, size, size);
    };
    if (this.view.hover) box(this.view.hover, "#ffffff", this.ratio);
    if (this.view.pixel) {
      box(this.view.pixel, "#000000", 5 * this.ratio);
      box(this.view.pixel, "#ffffff", 2 * this.ratio);
    }
  }

  // ---- input

  /**
   * The pixel of the map under an event.
   * @param {MouseEvent} event
   * @returns {[number, number] | null}
   */
  pixelUnder(event) {
    const [x, y] = this.under(event).map(Math.floor);
    return x >= 0 && y >= 0 && x < this.view.nx && y < this.view.ny ? [x, y] : null;
  }

  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, event);
    if (this.pointers.size === 1) {
      this.start = event;
      this.dragged = false;
    }
  }

  moved(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.view.point(this.pixelUnder(event));
      return;
    }
    if (this.pointers.size === 2) {
      const other = [...this.pointers.values()].find((one) => one.pointerId !== event.pointerId);
      const distance = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
      const middle = { clientX: (event.clientX + other.clientX) / 2, clientY: (event.clientY + other.clientY) / 2 };
      this.dragged = true;
      this.view.zoom(distance(event) / distance(before), ...this.under(middle));
    } else {
      this.dragged ||= Math.hypot(event.clientX - this.start.clientX, event.clientY - this.start.clientY) > DRAG_PIXELS;
      if (this.dragged) {
        this.view.move(
          (before.clientX - event.clientX) / this.view.scale,
          (event.clientY - before.clientY) / this.view.scale,
        );
      }
    }
    this.pointers.set(event.pointerId, event);
  }

  up(event) {
    const pressed = this.pointers.delete(event.pointerId);
    const pixel = this.pixelUnder(event);
    if (pressed && !this.dragged && event.type === "pointerup" && pixel) this.view.choose(...pixel);
  }

  wheel(event) {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    this.view.zoom(2 ** ((-event.deltaY * lines) / 240), ...this.under(event));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = KEYS[event.key];
    if (step) {
      const far = event.shiftKey ? 10 : 1;
      const [x, y] = this.view.pixel ?? [Math.floor(this.view.x), Math.floor(this.view.y)];
      this.view.hover = null; // the keys take precedence over the position of the pointer
      this.view.choose(x + far * step[0], y + far * step[1], { follow: this.size });
    } else if (event.key === "+" || event.key === "=") this.view.zoom(1.5, ...this.middle());
    else if (event.key === "-") this.view.zoom(1 / 1.5, ...this.middle());
    else if (event.key === "0" || event.key === "Home") this.view.fit(this.size.width, this.size.height);
    else return;
    event.preventDefault();
  }

  /**
   * The centre of a zoom by keys: the chosen pixel if it is in view, else the middle of the canvas.
   * @returns {[number, number]}
   */
  middle() {
    const { pixel } = this.view;
    const seen =
      pixel &&
      Math.abs(pixel[0] - this.view.x) * this.view.scale < this.size.width / 2 &&
      Math.abs(pixel[1] - this.view.y) * this.view.scale < this.size.height / 2;
    return seen ? [pixel[0] + 0.5, pixel[1] + 0.5] : [this.view.x, this.view.y];
  }
}

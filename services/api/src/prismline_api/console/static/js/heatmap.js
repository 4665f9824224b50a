// The heat map: one square for each cell, in reading order. Cells are the pixels of an image that the canvas scales, so
// a frame costs the same for 100 cells and for 100,000.

import { STATES } from "./cells.js";
import { duration as durationText, stateGlyph } from "./dom.js";
import { css, named, viridis } from "./scales.js";

const LARGEST = 28; // maximum side of a square, in CSS pixels
const MOST_ROWS_PX = 520; // maximum height of the map, in CSS pixels
const MOST_ATTEMPTS = 6;
const SAMPLE = 5000;
const GLYPH_SIDE = 14; // smallest side of a square with a glyph, and with a cross in a failed cell, in CSS pixels
const CROSS_SIDE = 5;
const RING = 1.5; // distance of the ring around a smaller failed cell
const FAILED = STATES.indexOf("failed");
const MEASURE = "prismline-heat-map";
const MOST_MEASURES = 500;
const GLYPHS = STATES.map((state) => stateGlyph(state));

export class HeatMap {
  /**
   * @param {HTMLElement} place
   * @param {{onCursor: (row: number) => void, onOpen: (row: number) => void, onSelect: (rows: number[] | null) => void}} handlers
   */
  constructor(place, handlers) {
    this.handlers = handlers;
    this.cells = null;
    this.failed = null; // the marks of failed cells that are too small for a glyph
    this.colour = "state";
    this.cursor = 0;
    this.selected = null; // [first, last] row, both inclusive
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "map of cells");
    this.canvas.setAttribute("aria-label", "Cells of the run. Arrow keys move from cell to cell, Enter opens one.");
    this.canvas.setAttribute("aria-describedby", "cell-says");
    place.append(this.canvas);
    this.image = document.createElement("canvas");
    this.drawAgain = false;
    this.frames = 0;
    new ResizeObserver(() => this.layout()).observe(place);
    this.place = place;
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("pointerdown", (event) => this.down(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerup", (event) => this.up(event));
    this.canvas.addEventListener("focus", () => {
      this.say();
      this.draw();
    });
    this.canvas.addEventListener("blur", () => this.draw());
    document.addEventListener("prismline-theme", () => this.paint());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
  }

  show(cells) {
    const first = !this.cells?.length,
      another = this.cells?.length !== cells.length;
    this.cells = cells;
    this.cursor = Math.min(this.cursor, Math.max(0, cells.length - 1));
    if (another) this.layout();
    else this.paint();
    if (first && document.activeElement === this.canvas) this.say();
  }

  colourBy(name) {
    this.colour = name;
    this.paint();
  }

  // ---- layout

  layout() {
    const width = Math.max(1, Math.floor(this.place.clientWidth));
    const number = Math.max(1, this.cells?.length ?? 1);
    let side = Math.min(LARGEST, Math.floor(Math.sqrt((width * MOST_ROWS_PX) / number)));
    side = Math.max(1, side);
    while (side > 1 && Math.ceil(number / Math.floor(width / side)) * side > MOST_ROWS_PX) side -= 1;
    this.side = side;
    this.perRow = Math.max(1, Math.floor(width / side));
    this.rows = Math.ceil(number / this.perRow);
    const ratio = window.devicePixelRatio || 1;
    this.ratio = ratio;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.rows * side * ratio);
    this.canvas.style.height = `${this.rows * side}px`;
    this.image.width = this.perRow;
    this.image.height = this.rows;
    this.paint();
  }

  rowAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.min(this.perRow - 1, Math.max(0, Math.floor((event.clientX - box.left) / this.side)));
    const line = Math.min(this.rows - 1, Math.max(0, Math.floor((event.clientY - box.top) / this.side)));
    return Math.min(this.cells.length - 1, line * this.perRow + column);
  }

  // ---- drawing

  palette() {
    if (this.colour === "state")
      return STATES.map((state) => named(`--${state === "in_progress" ? "running" : state}`));
    return Array.from({ length: 256 }, (_, index) => viridis(index / 255));
  }

  // Set the colour of each cell. A cell without a value gets the colour `none`.
  paint() {
    if (!this.cells) return;
    const began = performance.now();
    const { cells } = this;
    const context = this.image.getContext("2d");
    const pixels = context.createImageData(this.perRow, this.rows);
    const words = new Uint32Array(pixels.data.buffer);
    /** @param {import("./scales.js").Colour} colour */
    const pack = ([red, green, blue]) => (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
    const palette = Uint32Array.from(this.palette().map(pack));
    const none = pack(named("--line"));
    if (this.colour === "state") {
      for (let row = 0; row < cells.length; row += 1) words[row] = palette[cells.state[row]];
    } else if (this.colour === "attempts") {
      for (let row = 0; row < cells.length; row += 1) {
        const attempts = cells.attempts[row];
        words[row] =
          attempts === 0 ? none : palette[Math.round((255 * Math.min(attempts, MOST_ATTEMPTS)) / MOST_ATTEMPTS)];
      }
    } else {
      this.range = this.durations();
      const [least, most] = this.range.map((ms) => Math.log(ms));
      const scale = 255 / Math.max(1e-9, most - least);
      for (let row = 0; row < cells.length; row += 1) {
        const ms = cells.duration[row];
        words[row] =
          ms < 0 ? none : palette[Math.max(0, Math.min(255, Math.round((Math.log(Math.max(1, ms)) - least) * scale)))];
      }
    }
    context.putImageData(pixels, 0, 0);
    this.failed = this.marksOfFailed();
    this.drawNow();
    this.measured(began);
  }

  // The limits of the scale of durations: the 1st and the 99th percentile of a sample.
  durations() {
    const { duration } = this.cells;
    const step = Math.max(1, Math.floor(duration.length / SAMPLE));
    const sample = Int32Array.from({ length: Math.ceil(duration.length / step) }, (_, index) => duration[index * step]);
    const found = sample.filter((ms) => ms >= 0).sort();
    if (!found.length) return [1, 10];
    const least = Math.max(1, found[Math.floor(found.length * 0.01)]);
    return [least, Math.max(least + 1, found[Math.min(found.length - 1, Math.floor(found.length * 0.99))])];
  }

  draw() {
    if (this.drawAgain) return;
    this.drawAgain = true;
    requestAnimationFrame(() => {
      const began = performance.now();
      this.drawAgain = false;
      this.drawNow();
      this.measured(began);
    });
  }

  // Record the time of each frame in the browser's performance entries. Old entries are deleted.
  measured(began) {
    this.frames += 1;
    if (this.frames % MOST_MEASURES === 0) performance.clearMeasures(MEASURE);
    performance.measure(MEASURE, { start: began });
  }

  drawNow() {
    if (!this.cells) return;
    const context = this.canvas.getContext("2d");
    const { ratio, side, perRow, rows } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, 0, 0, perRow * side * ratio, rows * side * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (side >= 6) this.drawSquares(context);
    if (this.failed) this.drawMarks(context);
    if (this.selected) this.drawSelection(context);
    if (this.cells.length && document.activeElement === this.canvas) this.drawCursor(context);
  }

  // Large squares have edges, and a glyph that shows the state without the colour.
  drawSquares(context) {
    const { side, perRow, cells } = this;
    context.strokeStyle = css(named("--panel"));
    context.lineWidth = 1;
    context.fillStyle = "#fff";
    context.font = `${Math.floor(side * 0.6)}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = 0; row < cells.length; row += 1) {
      const x = (row % perRow) * side;
      const y = Math.floor(row / perRow) * side;
      context.strokeRect(x + 0.5, y + 0.5, side, side);
      if (side >= GLYPH_SIDE && this.colour === "state")
        context.fillText(GLYPHS[cells.state[row]], x + side / 2 + 0.5, y + side / 2 + 1);
    }
  }

  // Failed cells that are too small for a glyph differ from others by a shape: a cross, or a ring around the smallest.
  marksOfFailed() {
    const { side, perRow, cells } = this;
    if (side >= GLYPH_SIDE || this.colour !== "state") return null;
    const marks = new Path2D();
    const [low, high] = side >= CROSS_SIDE ? [1, side - 1] : [-RING, side + RING];
    for (let row = cells.state.indexOf(FAILED); row >= 0; row = cells.state.indexOf(FAILED, row + 1)) {
      const x = (row % perRow) * side;
      const y = Math.floor(row / perRow) * side;
      if (side >= CROSS_SIDE) {
        marks.moveTo(x + low, y + low);
        marks.lineTo(x + high, y + high);
        marks.moveTo(x + low, y + high);
        marks.lineTo(x + high, y + low);
      } else marks.rect(x + low, y + low, high - low, high - low);
    }
    return marks;
  }

  drawMarks(context) {
    context.lineWidth = 1;
    context.strokeStyle = this.side >= CROSS_SIDE ? "#fff" : css(named("--ink"));
    context.stroke(this.failed);
  }

  drawSelection(context) {
    const { side, perRow } = this;
    const [first, last] = this.selected;
    context.save();
    context.strokeStyle = css(named("--ink"));
    context.fillStyle = css(named("--ink"));
    context.globalAlpha = 0.25;
    for (let line = Math.floor(first / perRow); line <= Math.floor(last / perRow); line += 1) {
      const from = Math.max(first, line * perRow) - line * perRow;
      const to = Math.min(last, line * perRow + perRow - 1) - line * perRow;
      context.fillRect(from * side, line * side, (to - from + 1) * side, side);
    }
    context.restore();
  }

  drawCursor(context) {
    const { side, perRow } = this;
    const x = (this.cursor % perRow) * side;
    const y = Math.floor(this.cursor / perRow) * side;
    const size = Math.max(side, 7);
    const shift = (size - side) / 2;
    context.lineWidth = 3;
    context.strokeStyle = css(named("--paper"));
    context.strokeRect(x - shift, y - shift, size, size);
    context.lineWidth = 1.5;
    context.strokeStyle = css(named("--ink"));
    context.strokeRect(x - shift, y - shift, size, size);
  }

  // ---- keyboard and pointer

  key(event) {
    if (!this.cells?.length) return;
    const steps = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -this.perRow,
      ArrowDown: this.perRow,
      PageUp: -10 * this.perRow,
      PageDown: 10 * this.perRow,
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key in steps) {
      const before = this.cursor;
      this.cursor = Math.max(0, Math.min(this.cells.length - 1, this.cursor + steps[event.key]));
      if (event.shiftKey) {
        this.anchor ??= before;
        this.select(this.anchor, this.cursor);
      } else this.anchor = null;
      this.say();
      this.draw();
    } else if (event.key === "Enter" || event.key === " ") this.handlers.onOpen(this.cursor);
    else if (event.key === "Escape") this.select(null);
    else return;
    event.preventDefault();
  }

  down(event) {
    if (!this.cells?.length || event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pressed = this.rowAt(event);
    this.cursor = this.pressed;
    this.draw();
  }

  move(event) {
    if (!this.cells?.length) return;
    const row = this.rowAt(event);
    if (this.pressed !== undefined && row !== this.pressed) {
      this.cursor = row;
      this.select(this.pressed, row);
    }
    this.handlers.onCursor(row);
  }

  up(event) {
    if (this.pressed === undefined) return;
    const row = this.rowAt(event);
    const click = row === this.pressed;
    this.pressed = undefined;
    if (click) {
      this.cursor = row;
      this.select(null);
      this.say();
      this.handlers.onOpen(row);
    }
  }

  select(from, to) {
    this.selected = from === null ? null : [Math.min(from, to), Math.max(from, to)];
    this.handlers.onSelect(this.selected);
    this.draw();
  }

  say() {
    if (this.cells?.length) this.handlers.onCursor(this.cursor);
  }

  // The texts at both ends of the colour scale of attempts or durations.
  legend() {
    if (this.colour === "attempts") return { from: "1", to: `${MOST_ATTEMPTS} or more` };
    const [least, most] = this.range ?? [1, 10];
    return { from: durationText(least / 1000), to: durationText(most / 1000) };
  }
}

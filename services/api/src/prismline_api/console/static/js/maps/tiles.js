// Tiles of a map, fetched on demand and cached.
import { request } from "../api.js";

// Number of cached tiles: about 50 MB.
const MOST_TILES = 200;
// Tiles that are requested at the same time.
const CONNECTIONS = 4;
// Milliseconds until a tile that lacks chunks is requested again.
const AGAIN_MS = 400;

export class TileSource {
  // `about` is the answer of /runs/{id}/maps. `onChange` is called whenever there is something new to draw.
  constructor(about, name, onChange) {
    this.about = about;
    this.name = name;
    this.onChange = onChange;
    this.tiles = new Map();
    this.waiting = [];
    this.active = 0;
    this.closed = false;
    this.problem = null;
  }

  // The tile if it is cached: {values, width, height, pending}. Otherwise null, and the tile is requested.
  find(level, column, row) {
    const key = `${level}/${column}/${row}`;
    let tile = this.tiles.get(key);
    if (tile) {
      this.tiles.delete(key);
    } else {
      tile = { key, level, column, row, values: null, pending: 0, asked: false, painted: null };
      this.ask(tile);
    }
    this.tiles.set(key, tile);
    while (this.tiles.size > MOST_TILES) this.tiles.delete(this.tiles.keys().next().value);
    return tile.values ? tile : null;
  }

  // The value at a pixel, from the finest cached tile: {value, exact}.
  valueAt(x, y) {
    for (let level = 0; level < this.about.levels; level += 1) {
      const side = this.about.tile_pixels;
      const [i, j] = [Math.floor(x / 2 ** level), Math.floor(y / 2 ** level)];
      const tile = this.tiles.get(`${level}/${Math.floor(i / side)}/${Math.floor(j / side)}`);
      if (tile?.values) return { value: tile.values[(j % side) * tile.width + (i % side)], exact: level === 0 };
    }
    return { value: undefined, exact: false };
  }

  // Number of completed chunks that are not in the tiles yet.
  get pending() {
    return Math.max(0, ...[...this.tiles.values()].map((tile) => tile.pending));
  }

  // Request all tiles again, because the run has made progress. The server sends no tile that has not changed.
  refresh() {
    for (const tile of this.tiles.values()) this.ask(tile);
  }

  close() {
    this.closed = true;
    this.waiting.length = 0;
  }

  ask(tile) {
    if (tile.asked || this.closed) return;
    tile.asked = true;
    this.waiting.push(tile);
    this.next();
  }

  next() {
    while (this.active < CONNECTIONS && this.waiting.length) {
      const tile = this.waiting.pop(); // the tile that was needed last comes first
      if (!this.tiles.has(tile.key) && tile.values) continue;
      this.active += 1;
      this.load(tile).finally(() => {
        this.active -= 1;
        tile.asked = false;
        this.next();
      });
    }
  }

  async load(tile) {
    const { level, column, row } = tile;
    const run = encodeURIComponent(this.about.run_id);
    try {
      const answer = await request("GET", `/runs/${run}/maps/${this.name}/tiles/${level}/${column}/${row}`);
      const etag = answer.headers.get("ETag");
      tile.pending = Number(answer.headers.get("Prismline-Pending") ?? 0);
      const body = await answer.arrayBuffer();
      if (this.closed) return;
      if (etag !== tile.etag || !tile.values) {
        tile.etag = etag;
        tile.values = new Float32Array(body);
        tile.width = Math.min(
          this.about.tile_pixels,
          Math.ceil(this.about.nx / 2 ** level) - column * this.about.tile_pixels,
        );
        tile.height = tile.values.length / tile.width;
        tile.painted = null;
      }
      this.problem = null;
      if (tile.pending) setTimeout(() => this.ask(tile), AGAIN_MS);
    } catch (problem) {
      this.problem = problem;
      if (problem.status === 0 || problem.status >= 429) setTimeout(() => this.ask(tile), 5 * AGAIN_MS);
    }
    if (!this.closed) this.onChange();
  }
}

// The difference of two maps of the same shape: the first minus the second.
export class DifferenceSource {
  constructor(first, second) {
    this.first = first;
    this.second = second;
    this.about = first.about;
    this.tiles = new Map();
  }

  find(level, column, row) {
    const [one, other] = [this.first.find(level, column, row), this.second.find(level, column, row)];
    if (!one || !other) return null;
    const key = `${level}/${column}/${row}`;
    const known = this.tiles.get(key);
    if (known && known.of[0] === one.values && known.of[1] === other.values) return known;
    const values = one.values.map((value, index) => value - other.values[index]);
    const tile = {
      values,
      width: one.width,
      height: one.height,
      level,
      column,
      row,
      painted: null,
      of: [one.values, other.values],
    };
    this.tiles.set(key, tile);
    if (this.tiles.size > MOST_TILES) this.tiles.delete(this.tiles.keys().next().value);
    return tile;
  }

  valueAt(x, y) {
    const [one, other] = [this.first.valueAt(x, y), this.second.valueAt(x, y)];
    return { value: one.value - other.value, exact: one.exact && other.exact };
  }

  get pending() {
    return Math.max(this.first.pending, this.second.pending);
  }
  get problem() {
    return this.first.problem ?? this.second.problem;
  }
}

// The cells of a run as typed arrays, from an answer of /v1/runs/{id}/cells and from events that change some of them.

export const STATES = ["pending", "in_progress", "completed", "failed", "deferred"];
const COLUMNS = ["state", "attempts", "started", "duration", "ended"];

function unbase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let index = 0; index < raw.length; index += 1) bytes[index] = raw.charCodeAt(index);
  return bytes;
}

// Decode 32-bit integers. They are stored as differences, with the lowest bytes of all numbers first.
function numbers(text) {
  const bytes = unbase64(text);
  const length = bytes.length / 4;
  const values = new Int32Array(length);
  let value = 0;
  for (let index = 0; index < length; index += 1) {
    value =
      (value +
        (bytes[index] |
          (bytes[index + length] << 8) |
          (bytes[index + 2 * length] << 16) |
          (bytes[index + 3 * length] << 24))) |
      0;
    values[index] = value;
  }
  return values;
}

export class Cells {
  constructor(document) {
    const { columns } = document;
    this.about = document;
    this.version = document.version;
    this.openedAt = document.opened_at ? Date.parse(document.opened_at) : null;
    this.cell = numbers(columns.cell);
    this.state = unbase64(columns.state);
    this.attempts = unbase64(columns.attempts);
    this.started = numbers(columns.started);
    this.duration = numbers(columns.duration);
    this.ended = numbers(columns.ended);
  }

  get length() {
    return this.cell.length;
  }

  // The row of a cell, by its number. -1: there is no such cell.
  row(number) {
    let low = 0;
    let high = this.cell.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.cell[middle] === number) return middle;
      if (this.cell[middle] < number) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }

  // Apply the changes of an event. Returns the changed rows, or null if some of the cells are unknown.
  change(changes) {
    const rows = changes.cell.map((number) => this.row(number));
    if (rows.includes(-1)) return null;
    for (const name of COLUMNS)
      rows.forEach((row, index) => {
        this[name][row] = changes[name][index];
      });
    return rows;
  }

  // How many cells are in each state, in the order of STATES.
  counts(rows = null) {
    const counts = new Array(STATES.length).fill(0);
    if (rows === null) for (let row = 0; row < this.length; row += 1) counts[this.state[row]] += 1;
    else for (const row of rows) counts[this.state[row]] += 1;
    return counts;
  }
}

// The numbers of waiting, running, completed and failed cells at `steps` times from the beginning of the run to `until`
// (ms after it was opened). Only the latest attempt of each cell is known.
export function overTime(cells, until, steps = 240) {
  const width = Math.max(1, until) / steps;
  const began = new Float64Array(steps + 2);
  const ended = { completed: new Float64Array(steps + 2), failed: new Float64Array(steps + 2) };
  const all = new Float64Array(steps + 2);
  const at = (ms) => Math.min(steps + 1, Math.max(0, Math.ceil(ms / width)));
  for (let row = 0; row < cells.length; row += 1) {
    const state = STATES[cells.state[row]];
    const started = cells.started[row];
    if (state === "in_progress" && started >= 0) began[at(started)] += 1;
    if (state !== "completed" && state !== "failed") continue;
    const from = Math.max(0, started);
    // The end of a cell is recorded later than its attempt took, for tasks by seconds: their batch ends first.
    const to = cells.ended[row] >= 0 ? Math.max(from, cells.ended[row]) : from + Math.max(0, cells.duration[row]);
    began[at(from)] += 1;
    all[at(to)] += 1;
    ended[state][at(to)] += 1;
  }
  const series = { seconds: [], pending: [], running: [], completed: [], failed: [] };
  let begun = 0;
  let over = 0;
  let completed = 0;
  let failed = 0;
  for (let step = 0; step <= steps; step += 1) {
    begun += began[step];
    over += all[step];
    completed += ended.completed[step];
    failed += ended.failed[step];
    series.seconds.push((step * width) / 1000);
    series.pending.push(cells.length - begun);
    series.running.push(begun - over);
    series.completed.push(completed);
    series.failed.push(failed);
  }
  return series;
}

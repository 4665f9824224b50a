// The attempts at a cell: a table, and a picture with a lane for each worker.

import { count, duration, el, moment, momentText, plural, svg } from "./dom.js";
import { table } from "./tables.js";

// Least width of a bar, in percent.
const THINNEST = 1;

// The attempts whose times are known, the earliest first. Times are in milliseconds.
function timed(cell) {
  const found = cell.errors.map((error) => ({
    worker: error.worker,
    began: Date.parse(error.at) - (error.duration_ms ?? 0),
    ended: Date.parse(error.at),
    state: "failed",
  }));
  const latest = { completed: cell.completed_at, in_progress: new Date().toISOString() }[cell.status];
  if (latest && cell.started_at)
    found.push({
      worker: cell.worker,
      began: Date.parse(cell.started_at),
      ended: Date.parse(latest),
      state: cell.status,
    });
  return found.sort((first, second) => first.began - second.began);
}

/**
 * The attempts over time, in a lane for each worker. Null if fewer than two are known: the table says all of one.
 * @param {any} cell
 */
export function lanes(cell) {
  const found = timed(cell);
  if (found.length < 2) return null;
  const from = found[0].began;
  const until = Math.max(...found.map(({ ended }) => ended));
  const place = (time) => (100 * (time - from)) / Math.max(until - from, 1);
  const byWorker = Map.groupBy(found, ({ worker }) => worker ?? "not known");
  const text = (time) => momentText(time, { seconds: true, day: false });
  return el(
    "div",
    {
      class: "lanes",
      role: "img",
      "aria-label":
        `${plural(found.length, "attempt")} of ${plural(byWorker.size, "worker")}` +
        ` from ${text(from)} to ${text(until)}. The table lists them.`,
    },
    [...byWorker].map(([worker, made]) => [
      el("span", { class: "mono", title: worker }, worker),
      svg(
        "svg",
        { viewBox: "0 0 100 10", preserveAspectRatio: "none" },
        made.map(({ began, ended, state }) => {
          const width = Math.max(THINNEST, place(ended) - place(began));
          return svg("rect", {
            class: `state-${state}`,
            x: Math.min(place(began), 100 - width),
            y: 1,
            width,
            height: 8,
          });
        }),
      ),
    ]),
    el("span", {}),
    el("span", { class: "ends hint" }, el("span", {}, text(from)), el("span", {}, text(until))),
  );
}

// The known attempts: those that ended with an error, and the latest one. Of other attempts nothing is known: their
// worker died, or they are older than the errors that the ledger keeps.
/** @param {any} cell */
export function attempts(cell) {
  const errors = new Map(cell.errors.map((error) => [error.attempt, error]));
  const rows = [];
  let silent = 0;
  const told = () => {
    if (silent)
      rows.push([
        silent === 1 ? "1 more" : `${count(silent)} more`,
        "–",
        "–",
        "–",
        el("span", { class: "hint" }, "no record: the worker died, or the attempt is too old"),
      ]);
    silent = 0;
  };
  for (let number = 1; number <= cell.attempts; number += 1) {
    const error = errors.get(number);
    const latest = number === cell.attempts;
    if (!error && !latest) {
      silent += 1;
      continue;
    }
    told();
    const took = error ? error.duration_ms : cell.status === "completed" ? cell.duration_ms : undefined;
    const what = error
      ? [error.interrupted ? el("span", { class: "hint" }, "does not count: ") : null, error.error]
      : ({ completed: "completed", in_progress: "in progress" }[cell.status] ??
        el("span", { class: "hint" }, "no record: the worker died"));
    const at = error?.at ?? (cell.status === "completed" ? cell.completed_at : undefined);
    rows.push([
      count(number),
      moment(at, { seconds: true, day: at?.slice(0, 10) !== cell.created_at.slice(0, 10) }),
      took === undefined ? "–" : duration(took / 1000),
      (error ? error.worker : cell.worker) ?? "–",
      what,
    ]);
  }
  return rows.length
    ? table("Attempts", [["Attempt", "number"], ["Ended"], ["Took", "number"], ["Worker"], ["Outcome", "wide"]], rows)
    : null;
}

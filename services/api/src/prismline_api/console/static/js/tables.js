// Tables of the pages for dead letters, alerts, the system and contracts.
import { badge, el } from "./dom.js";

// A table with a caption that only screen readers see. Columns are [heading, class]; rows are lists of cells.
export function table(caption, columns, rows) {
  const cell = (content, index) => el("td", { class: columns[index][1] }, content);
  return el(
    "table",
    {},
    el("caption", { class: "visually-hidden" }, caption),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        columns.map(([heading, kind]) => el("th", { scope: "col", class: kind }, heading)),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map((cells) => el("tr", {}, cells.map(cell))),
    ),
  );
}

// The state of an alarm.
export const alarmBadge = (state) => badge({ OK: "ok", ALARM: "alarm" }[state] ?? "no_data");

// Tables of all pages.
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

// A place in which a wide table scrolls, also by keyboard.
export const region = (label, content) =>
  el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Table: ${label}` }, content);

// The state of an alarm.
export const alarmBadge = (state) => badge({ OK: "ok", ALARM: "alarm" }[state] ?? "no_data");

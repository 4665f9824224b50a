// The cells of a run as a table: those of one state, or the tasks that a search found.

import { get } from "./api.js";
import { STATES } from "./cells.js";
import { badge, byId, count, duration, el, plural, replace } from "./dom.js";
import { region, table } from "./tables.js";

// Rows that are shown at first, and that each further click adds.
const ROWS = 50;
const HEADINGS = [["Cell", "number"], ["State"], ["Attempts", "number"], ["Took", "number"]];

export class CellTable {
  /**
   * @param {string} path
   * @param {(number: number) => void} open
   */
  constructor(path, open) {
    this.path = path;
    this.open = open;
    this.cells = null;
    this.shown = ROWS;
    this.searching = false;
    const select = byId("table-state", HTMLSelectElement);
    select.append(...STATES.map((state) => el("option", { value: state }, state.replace("_", " "))));
    select.addEventListener("change", () => {
      this.shown = ROWS;
      this.draw();
    });
    this.select = select;
    byId("find").addEventListener("submit", (event) => {
      event.preventDefault();
      this.find(byId("find-text", HTMLInputElement).value.trim());
    });
  }

  show(cells) {
    this.cells = cells;
    byId("find").hidden = cells.about.unit !== "task";
    if (!this.searching) this.draw();
  }

  // The table of the cells in the chosen state.
  draw() {
    if (!this.cells) return;
    const wanted = this.select.value === "" ? null : STATES.indexOf(this.select.value);
    const rows = [];
    let found = 0;
    for (let row = 0; row < this.cells.length; row += 1) {
      if (wanted !== null && this.cells.state[row] !== wanted) continue;
      found += 1;
      if (rows.length < this.shown) rows.push(this.row(row));
    }
    replace(
      byId("table"),
      rows.length
        ? region("Cells", table("Cells", HEADINGS, rows))
        : el("p", { class: "hint" }, "No cell is in this state."),
      found > rows.length
        ? el(
            "button",
            {
              type: "button",
              class: "secondary small",
              onclick: () => {
                this.shown += ROWS;
                this.draw();
              },
            },
            `Show more of ${count(found)}`,
          )
        : null,
    );
  }

  row(row) {
    const { cell, state, attempts, duration: took } = this.cells;
    return [
      this.button(cell[row], count(cell[row])),
      badge(STATES[state[row]]),
      count(attempts[row]),
      took[row] >= 0 ? duration(took[row] / 1000) : "–",
    ];
  }

  button(number, text) {
    return el("button", { type: "button", class: "secondary small", onclick: () => this.open(number) }, text);
  }

  // Show the tasks whose URL begins with the text, or the one with this id. Without a text, the cells again.
  async find(text) {
    const says = byId("found");
    this.searching = text !== "";
    if (!text) {
      says.textContent = "";
      this.draw();
      return;
    }
    says.textContent = "Searching.";
    try {
      const { tasks, more } = await this.tasks(text);
      says.textContent = `${more ? "At least " : ""}${plural(tasks.length, "task")} found.`;
      const rows = tasks.map((task) => [
        this.button(task.index, task.url ?? JSON.stringify(task.item)),
        badge(task.status),
        count(task.attempts),
        task.duration_ms === undefined ? "–" : duration(task.duration_ms / 1000),
      ]);
      replace(
        byId("table"),
        rows.length
          ? region("Found tasks", table("Found tasks", [["Task", "wide"], ...HEADINGS.slice(1)], rows))
          : null,
      );
    } catch (problem) {
      says.textContent = problem.detail ?? problem.message;
    }
  }

  async tasks(text) {
    const own = text.split(".").at(-1);
    if (/^[0-9a-f]{64}$/.test(own)) {
      const runId = this.path.split("/").at(-1);
      return { tasks: [await get(`/tasks/${runId}.${own}`)], more: false };
    }
    const tasks = [];
    let cursor;
    do {
      const page = await get(`${this.path}/tasks`, { url: text, limit: ROWS, cursor });
      tasks.push(...page.items);
      cursor = page.next_cursor;
    } while (cursor && tasks.length < ROWS);
    return { tasks, more: Boolean(cursor) };
  }
}

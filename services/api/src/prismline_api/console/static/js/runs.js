// The list of runs. The filters are in the address, so a list can be shared.
import { get } from "./api.js";
import {
  badge,
  byId,
  bytes,
  count,
  duration,
  el,
  empty,
  field,
  focusOn,
  given,
  moment,
  plural,
  replace,
} from "./dom.js";
import { poll, saysState } from "./live.js";
import { takesFiles } from "./submit.js";

if (document.getElementById("drop")) takesFiles(byId("drop"), byId("file", HTMLInputElement));

const PAGE = 100;
const form = byId("filters", HTMLFormElement);
const list = byId("list");
const more = byId("more");
let limit = PAGE;

for (const [name, value] of new URLSearchParams(location.search)) {
  if (field(form, name)) field(form, name).value = value;
}

const filters = () => given(form);

function progress(run) {
  const { total, completed = 0, failed = 0 } = run.counts ?? {};
  if (!run.counts) return el("span", { class: "none" }, "–");
  const ended = completed + failed;
  const label =
    total === undefined || total === null ? `${count(ended)} so far` : `${count(ended)} of ${plural(total, run.unit)}`;
  const share = total ? ended / total : 0;
  return el(
    "div",
    { class: "progress-cell" },
    el("progress", { max: 1, value: share, "aria-label": `Progress of ${run.name}: ${label}` }),
    el("span", {}, label),
  );
}

function seconds(run) {
  if (!run.created_at) return null;
  const end = run.completed_at ? Date.parse(run.completed_at) : Date.now();
  return Math.max(0, (end - Date.parse(run.created_at)) / 1000);
}

// The costs of the ended cells so far: time, bytes of outputs, and attempts. For URLs, attempts are requests.
function costs(run) {
  if (!run.costs) return el("span", { class: "none" }, "–");
  const { worked_seconds: worked, bytes: length, attempts } = run.costs;
  return [
    el("div", {}, duration(worked)),
    el("div", { class: "sub" }, `${bytes(length)}, ${plural(attempts, run.unit === "task" ? "request" : "attempt")}`),
  ];
}

function row(run) {
  const failed = run.counts?.failed ?? 0;
  return el(
    "tr",
    {},
    el(
      "th",
      { scope: "row" },
      el("a", { href: `/console/runs/${encodeURIComponent(run.run_id)}` }, run.name || run.run_id),
      el("div", { class: "sub" }, run.run_id.slice(0, 8)),
    ),
    el("td", {}, run.workload),
    el("td", {}, badge(run.status)),
    el("td", {}, progress(run)),
    el(
      "td",
      { class: "number" },
      failed
        ? el(
            "a",
            { class: "failed", href: `/console/runs/${encodeURIComponent(run.run_id)}?show=failed` },
            count(failed),
          )
        : "0",
    ),
    el(
      "td",
      { class: "number" },
      run.dead_letters === 0
        ? "0"
        : el(
            "a",
            {
              class: run.dead_letters ? "failed" : null,
              href: `/console/dead-letters?run_id=${encodeURIComponent(run.run_id)}`,
              "aria-label": `Dead letters of ${run.name}: ${run.dead_letters ?? "not counted"}`,
            },
            count(run.dead_letters),
          ),
    ),
    el("td", { class: "number" }, count(run.n_items ?? run.counts?.total)),
    el("td", { class: "number" }, duration(seconds(run))),
    el("td", { class: "number" }, costs(run)),
    el("td", {}, moment(run.created_at)),
  );
}

const HEADINGS = [
  "Name",
  "Workload",
  "Status",
  "Progress",
  "Failed",
  "Dead letters",
  "Items",
  "Duration",
  "Cost",
  "Submitted",
];
const NUMBERS = new Set(["Failed", "Dead letters", "Items", "Duration", "Cost"]);

// Unchanged rows keep their elements, so that the focus and a selection survive, and 1,000 rows update quickly.
const rows = new Map();
const body = el("tbody");
const table = el(
  "table",
  { class: "list" },
  el("caption", { class: "visually-hidden" }, "Runs, the newest first"),
  el(
    "thead",
    {},
    el(
      "tr",
      {},
      HEADINGS.map((name) => el("th", { scope: "col", class: NUMBERS.has(name) ? "number" : null }, name)),
    ),
  ),
  body,
);

function show(runs) {
  if (!runs.length) {
    rows.clear();
    replace(
      list,
      Object.keys(filters()).length
        ? empty("No run matches these filters.", el("a", { href: "/console/runs" }, "Show all runs"))
        : empty(
            "There are no runs yet.",
            "Drop a cube or a list of URLs on this page, or submit one: ",
            el("code", {}, "prismline submit cube.fits"),
            ".",
          ),
    );
    return;
  }
  const shown = runs.map((run) => {
    const state = JSON.stringify(run) + (run.completed_at ? "" : duration(seconds(run)));
    const known = rows.get(run.run_id);
    if (known?.state === state) return known.element;
    const focused = known?.element.contains(document.activeElement)
      ? document.activeElement.getAttribute("href")
      : null;
    const element = row(run);
    if (known?.element.parentNode === body) known.element.replaceWith(element);
    rows.set(run.run_id, { state, element });
    if (focused) queueMicrotask(() => focusOn(element, `a[href="${CSS.escape(focused)}"]`));
    return element;
  });
  shown.forEach((element, index) => {
    if (body.children[index] !== element) body.insertBefore(element, body.children[index] ?? null);
  });
  while (body.children.length > shown.length) body.lastChild.remove();
  if (table.parentNode !== list) replace(list, table);
}

async function load() {
  const found = [];
  let cursor;
  do {
    const page = await get("/runs", { ...filters(), limit: Math.min(1000, limit - found.length), cursor });
    found.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor && found.length < limit);
  more.hidden = !cursor;
  show(found);
  list.setAttribute("aria-busy", "false");
}

const polling = poll(load, { seconds: 2, onState: saysState(byId("live")) });

function changed() {
  const query = new URLSearchParams(filters()).toString();
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
  limit = PAGE;
  polling.again();
}
form.addEventListener("input", changed);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  changed();
});
more.addEventListener("click", () => {
  limit += PAGE;
  polling.again();
});

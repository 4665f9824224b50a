// One run: its progress, a map of its cells, its timeline, and the history of each cell.

import { actionsOf } from "./actions.js";
import { showActivity, showCauses } from "./activity.js";
import { get, request } from "./api.js";
import { CellTable } from "./cell-table.js";
import { Cells, STATES } from "./cells.js";
import { showDetail } from "./detail.js";
import { badge, byId, bytes, copies, count, dollars, duration, el, empty, moment, plural, replace } from "./dom.js";
import { HeatMap } from "./heatmap.js";
import { follow, saysState } from "./live.js";
import { css, viridis } from "./scales.js";
import { TimeLine } from "./timeline.js";

const place = byId("run");
const runId = place.dataset.runId;
const path = `/runs/${encodeURIComponent(runId)}`;
const address = new URLSearchParams(location.search);

// Milliseconds until incomplete cells are requested again.
const READ_AGAIN_MS = 500;

let run = null;
let cells = null;
let loading = null;
let opened = null; // the number of the cell in the panel

// Keep the state of the page in the address, so that it can be shared.
function remember(name, value) {
  if (value === null || value === undefined) address.delete(name);
  else address.set(name, value);
  const query = address.toString();
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
}

// ---- the head of the page

// A rate in the smallest unit of time that makes it at least 1, such as 12 chunks/min.
function rate(perSecond, unit) {
  const [factor, time] = perSecond >= 1 ? [1, "s"] : perSecond * 60 >= 1 ? [60, "min"] : [3600, "h"];
  const number = perSecond * Number(factor);
  return `${count(number >= 10 ? Math.round(number) : Math.round(number * 10) / 10)} ${unit}s/${time}`;
}

function showRun(view) {
  run = view;
  document.title = `${run.name} · Prismline`;
  byId("name").textContent = run.name;
  const { total, completed = 0, failed = 0 } = run.counts ?? {};
  const end = run.completed_at && !run.going_on ? Date.parse(run.completed_at) : Date.now();
  const facts = [
    ["Status", badge(run.status)],
    ["Workload", run.workload],
    [run.unit === "task" ? "Tasks" : "Chunks", total === undefined ? "not known yet" : count(total)],
    ["Completed", count(completed)],
    ["Failed", failed ? el("span", { class: "failed" }, count(failed)) : "0"],
    ["Duration", duration((end - Date.parse(run.created_at)) / 1000)],
    [
      "Processing",
      run.costs ? duration(run.costs.worked_seconds) : cells ? duration(cells.about.processing_seconds) : "–",
    ],
    run.costs ? [run.unit === "task" ? "Requests" : "Attempts", count(run.costs.attempts)] : null,
    run.costs
      ? ["Results", bytes(run.costs.bytes)]
      : typeof cells?.about.bytes === "number"
        ? ["Results", bytes(cells.about.bytes)]
        : null,
    run.costs?.usd
      ? ["On AWS", el("span", { title: `List prices: ${run.costs.usd.prices}` }, dollars(run.costs.usd))]
      : null,
    run.n_rejected
      ? [
          "Rejected lines",
          run.rejects_url ? el("a", { href: run.rejects_url }, count(run.n_rejected)) : count(run.n_rejected),
        ]
      : null,
    run.pace ? ["Rate", rate(run.pace.per_second, run.unit)] : null,
    run.pace?.remaining_seconds !== undefined ? ["Time left", `about ${duration(run.pace.remaining_seconds)}`] : null,
    ["Submitted", moment(run.created_at)],
    run.completed_at && !run.going_on ? ["Ended", moment(run.completed_at)] : null,
    run.finalization?.status === "completed" ? ["Finalized", finalValue(run.finalization)] : null,
  ].filter(Boolean);
  const share = total ? (completed + failed) / total : 0;
  replace(
    place,
    el("progress", {
      class: "wide",
      max: 1,
      value: share,
      "aria-label": `${count(completed + failed)} of ${count(total)} ${run.unit}s have ended`,
    }),
    el(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
    ),
    run.conditions.map(({ name, sentence }) =>
      el("p", { class: "notice", id: `condition-${name.replaceAll("_", "-")}` }, sentence),
    ),
    run.error
      ? el("p", { class: run.going_on ? "hint" : "notice error" }, run.going_on ? `Before: ${run.error}` : run.error)
      : null,
  );
  place.setAttribute("aria-busy", "false");
  const links = byId("links");
  if (links.hidden) {
    links.hidden = false;
    replace(
      links,
      run.workload === "spectra" ? [el("a", { href: `/console${path}/cube` }, "Maps and spectra"), " · "] : null,
      el("a", { href: `/console/dead-letters?run_id=${encodeURIComponent(runId)}` }, "Dead letters"),
    );
  }
  actionsOf(byId("actions"), () => ({ run, cells }));
  showRest();
}

function finalValue({ value, value_url }) {
  return value_url ? el("a", { href: value_url }, "Value") : JSON.stringify(value ?? null);
}

// ---- pictures

const heat = new HeatMap(byId("heat"), {
  onCursor: (row) => {
    byId("cell-says").textContent = describe(row);
  },
  onOpen: open,
  onSelect: showSelection,
});
const timeLine = new TimeLine(byId("time"));
const cellTable = new CellTable(path, openCell);

function openCell(number) {
  const row = cells ? cells.row(number) : -1;
  if (row < 0) return;
  heat.cursor = row;
  heat.draw();
  open(row);
}

// The cards that are fetched again only when something that they show may have changed.
let fetchedFor = "";

// How often they are fetched while a recovery, an export or a post is not finished, and how long after the end of the
// run a post may begin, in milliseconds.
const AGAIN_MS = 5000;
const POSTED_WITHIN_MS = 60_000;

function showRest() {
  const names = run.conditions.map(({ name }) => name);
  const wanted = JSON.stringify([run.status, run.counts?.failed, run.cancelled_at, names]);
  if (wanted === fetchedFor) return;
  fetchedFor = wanted;
  fetchActivity();
  if (run.counts?.failed) showCauses(path, openCell).catch((problem) => says({ ok: false, problem }));
  else byId("causes").hidden = true;
}

let again = null;

async function fetchActivity() {
  clearTimeout(again);
  const justEnded = run.completed_at && Date.now() - Date.parse(run.completed_at) < POSTED_WITHIN_MS;
  const unfinished = await showActivity(path).catch((problem) => {
    says({ ok: false, problem });
    return true;
  });
  if (unfinished || justEnded) again = setTimeout(fetchActivity, AGAIN_MS);
}

function label(row) {
  return run?.unit === "task" ? `Task ${count(cells.cell[row])}` : `Chunk ${count(cells.cell[row])}`;
}

function describe(row) {
  const attempts = cells.attempts[row];
  const parts = [label(row), STATES[cells.state[row]].replace("_", " "), plural(attempts, "attempt")];
  if (cells.duration[row] >= 0) parts.push(duration(cells.duration[row] / 1000));
  return parts.join(", ");
}

function showLegend() {
  if (!cells) return;
  const legend = byId("legend");
  if (heat.colour === "state") {
    const counts = cells.counts();
    replace(
      legend,
      STATES.map((state, code) =>
        el(
          "span",
          { class: `state-${state}` },
          el("span", { class: "swatch" }),
          `${state.replace("_", " ")} ${count(counts[code])}`,
        ),
      ),
      counts[3] ? el("button", { type: "button", class: "secondary small", onclick: nextFailed }, "Next failed") : null,
    );
    return;
  }
  const { from, to } = heat.legend();
  const ramp = el("canvas", {
    class: "ramp",
    width: 64,
    height: 1,
    role: "img",
    "aria-label": `Colours from ${from} to ${to}`,
  });
  const context = ramp.getContext("2d");
  for (let x = 0; x < 64; x += 1) {
    context.fillStyle = css(viridis(x / 63));
    context.fillRect(x, 0, 1, 1);
  }
  replace(legend, el("span", {}, from, ramp, to), el("span", {}, "grey: no value yet"));
}

function nextFailed() {
  for (let step = 1; step <= cells.length; step += 1) {
    const row = (heat.cursor + step) % cells.length;
    if (cells.state[row] === 3) {
      heat.cursor = row;
      heat.say();
      heat.draw();
      open(row);
      return;
    }
  }
}

const MOST_LISTED = 50;

function showSelection(range) {
  const into = byId("selection");
  if (range === null) {
    replace(into);
    return;
  }
  const rows = Array.from({ length: range[1] - range[0] + 1 }, (_, index) => range[0] + index);
  const counts = cells.counts(rows);
  const failed = rows.filter((row) => cells.state[row] === 3);
  const listed = (failed.length ? failed : rows).slice(0, MOST_LISTED);
  replace(
    into,
    el("h3", {}, `${count(rows.length)} selected`),
    el(
      "p",
      {},
      STATES.map((state, code) => (counts[code] ? `${count(counts[code])} ${state.replace("_", " ")}` : null))
        .filter(Boolean)
        .join(", "),
    ),
    el(
      "p",
      { class: "cells" },
      listed.map((row) =>
        el("button", { type: "button", class: "secondary small", onclick: () => open(row) }, describe(row)),
      ),
    ),
    listed.length < (failed.length || rows.length)
      ? el("p", { class: "hint" }, `Only the first ${MOST_LISTED} are listed.`)
      : null,
  );
}

async function open(row) {
  opened = cells.cell[row];
  remember("cell", opened);
  await showDetail(byId("detail-body"), path, opened, run);
  byId("cell-says").textContent = `${describe(row)}. Its history is in the panel.`;
  if (matchMedia("(max-width: 1000px)").matches) byId("detail").scrollIntoView({ block: "nearest" });
}

// ---- fetching and following

let etag = null;
let drawing = null;

function drawSoon() {
  if (drawing !== null) return;
  drawing = setTimeout(() => {
    drawing = null;
    heat.show(cells);
    showLegend();
    timeLine.show(cells, run);
    cellTable.show(cells);
    if (run) showRun(run);
  }, 50);
}

async function loadCells() {
  const answer = await request("GET", `${path}/cells`, { headers: etag ? { "If-None-Match": etag } : {} });
  if (answer.status === 304) return;
  etag = answer.headers.get("ETag");
  const document = await answer.json();
  const first = cells === null;
  cells = new Cells(document);
  byId("pictures").hidden = cells.length === 0;
  if (!cells.length && run) {
    const ended = ["completed", "failed", "cancelled"].includes(run.status);
    if (!place.querySelector(".empty")) {
      place.append(
        ended
          ? empty(`This run has no ${run.unit}s.`, "It ended before its source was split.")
          : empty(`There are no ${run.unit}s yet.`, "They appear here as soon as the source is split."),
      );
    }
  } else place.querySelector(".empty")?.remove();
  if (cells.length) {
    drawSoon();
    if (first || !opened) firstLook();
  }
  const reading = byId("reading");
  reading.hidden = document.complete || !run?.counts;
  if (!reading.hidden) {
    const { total } = document;
    replace(
      reading,
      el(
        "label",
        { for: "reading-progress" },
        total
          ? `${count(document.count)} of ${plural(total, document.unit)} are read.`
          : `${plural(document.count, document.unit)} are read so far.`,
      ),
      " ",
      el("progress", { id: "reading-progress", max: total || null, value: total ? document.count : null }),
    );
  }
  if (!document.complete && document.opened_at) setTimeout(refresh, READ_AGAIN_MS);
}

// Open the cell that the address names, or the first failed one.
function firstLook() {
  const wanted = address.get("cell");
  const row =
    wanted !== null ? cells.row(Number(wanted)) : address.get("show") === "failed" ? cells.state.indexOf(3) : -1;
  if (row >= 0) {
    heat.cursor = row;
    open(row);
  }
}

// Fetch the cells, one request at a time.
function refresh() {
  loading ??= loadCells()
    .catch((problem) => says({ ok: false, problem }))
    .finally(() => {
      loading = null;
    });
  return loading;
}

async function loadAll() {
  showRun(await get(path));
  await loadCells();
}

const says = saysState(byId("live"));
const colour = address.get("colour");
if (["attempts", "duration"].includes(colour)) {
  heat.colour = colour;
  byId("colours").querySelector(`input[value="${colour}"]`)?.setAttribute("checked", "");
}
byId("colours").addEventListener("change", (event) => {
  const { value } = /** @type {HTMLInputElement} */ (event.target);
  heat.colourBy(value);
  remember("colour", value === "state" ? null : value);
  showLegend();
});

async function begin() {
  try {
    await loadAll();
  } catch (problem) {
    if (problem.status === 404) {
      replace(
        place,
        empty("There is no such run.", problem.detail, " ", el("a", { href: "/console/runs" }, "Show all runs")),
      );
      place.setAttribute("aria-busy", "false");
      return;
    }
    says({ ok: false, problem });
  }
  follow(
    runId,
    {
      run: (view) => {
        const status = run?.status;
        showRun(view);
        if (opened !== null && status !== view.status) showDetail(byId("detail-body"), path, opened, run);
      },
      version: () => cells?.version,
      cells: (changes, version) => {
        const rows = cells?.change(changes);
        if (!rows) {
          refresh();
          return;
        }
        cells.version = version;
        etag = null; // the shown cells are newer than the fetched ones
        drawSoon();
        if (opened !== null && changes.cell.includes(opened)) showDetail(byId("detail-body"), path, opened, run);
      },
      reset: refresh,
      state: says,
    },
    loadAll,
  );
}

copies(byId("copy-id"), runId);
begin();

// The panel of one cell: its history, its errors, its input and output, its dead letters, and its log lines.
import { get } from "./api.js";
import { attempts, lanes } from "./attempts.js";
import { badge, bytes, copyButton, count, duration, el, moment, plural, replace } from "./dom.js";
import { region, table } from "./tables.js";

// Interval at which the number of finished items of a chunk in progress is polled. Its worker reports at the same one.
const REPORT_MS = 5000;

let asked = 0;

const row = (name, value) => (value === null || value === undefined ? null : [el("dt", {}, name), el("dd", {}, value)]);
const code = (what, text) => (text ? [el("code", {}, text), " ", copyButton(what, text)] : null);
const error = (heading, text) => [
  el("h3", {}, heading, " ", copyButton(heading.toLowerCase(), text)),
  el("pre", {}, text),
];
const times = (number) => (number ? plural(number, "time") : null);

const underway = (cell) => cell.unit === "chunk" && cell.status === "in_progress";
const share = (cell) => (cell.n_done ? `${count(cell.n_done)} of ${count(cell.n_items)}` : "no report yet");

// The events of the cell, the earliest first.
function history(cell) {
  const between = cell.attempts - 2;
  const events = [
    [cell.created_at, "written to the ledger"],
    [cell.first_started_at, "first attempt began"],
    [cell.deferred_at, cell.deferrals > 1 ? `deferred (number ${cell.deferrals})` : "deferred"],
    [
      cell.attempts > 1 ? cell.started_at : null,
      between > 0 ? `latest attempt began (number ${cell.attempts})` : `attempt ${cell.attempts} began`,
    ],
    [cell.attempt_ended_at, "an attempt ended with an error"],
    [cell.completed_at, cell.status === "failed" ? "failed" : "completed"],
  ];
  return events.filter(([at]) => at).sort(([first], [second]) => (first < second ? -1 : first > second ? 1 : 0));
}

async function deadLetters(runId, chunkId) {
  const found = [];
  let cursor;
  for (let part = 0; part < 5; part += 1) {
    const page = await get("/dead-letters", { run_id: runId, cursor });
    found.push(...page.items.filter((letter) => letter.chunk_id === chunkId));
    cursor = page.next_cursor;
    if (!cursor) break;
  }
  return found;
}

// Update the number of finished items until the chunk has ended or the panel shows another cell.
function followProgress(cell, done, path, shown) {
  if (!underway(cell)) return;
  setTimeout(async () => {
    if (!shown()) return;
    const now = await get(`${path}/cells/${cell.cell}`).catch(() => cell);
    done.textContent = share(now);
    followProgress(now, done, path, shown);
  }, REPORT_MS);
}

// The log lines of a cell, read when they are opened. Those of a cell with an error are open.
function logs(path, cell) {
  const lines = el("div", {}, el("p", { class: "hint" }, "Reading the log …"));
  let read = false;
  const open = async () => {
    if (read) return;
    read = true;
    try {
      replace(lines, logLines(await get(`${path}/cells/${cell.cell}/logs`)));
    } catch (problem) {
      read = false;
      replace(lines, el("p", { class: "hint" }, `The log: ${problem.detail ?? problem.message}`));
    }
  };
  return el(
    "details",
    { id: "logs", ontoggle: (event) => event.target.open && open(), open: Boolean(cell.error || cell.last_error) },
    el("summary", {}, "Log lines"),
    lines,
  );
}

function logLines(found) {
  const facts = (fields) => Object.entries(fields).map(([name, value]) => `${name}=${value}`);
  const lines = found.lines.map((line) => [
    moment(line.at, { seconds: true, day: false }),
    line.level,
    line.process,
    [[line.message, ...facts(line.fields)].join(" "), line.traceback ? el("pre", {}, line.traceback) : null],
  ]);
  return [
    found.sentence ? el("p", { class: "hint" }, found.sentence) : null,
    found.url ? el("p", {}, el("a", { href: found.url, rel: "noopener" }, "Query the lines in CloudWatch")) : null,
    lines.length
      ? region("log lines", table("Log lines", [["Time"], ["Level"], ["Process"], ["Line", "wide"]], lines))
      : found.complete
        ? el("p", { class: "hint" }, "Nothing was logged about it since the system was last started.")
        : null,
  ];
}

export async function showDetail(into, path, number, run) {
  asked += 1;
  const turn = asked;
  let cell;
  try {
    cell = await get(`${path}/cells/${number}`);
  } catch (problem) {
    if (turn === asked) replace(into, el("p", { class: "notice error" }, problem.detail ?? problem.message));
    return;
  }
  if (turn !== asked) return;
  const done = el("span", {}, share(cell));
  const letters = el("div");
  const pending = ["pending", "in_progress"].includes(cell.status);
  replace(
    into,
    el("h3", {}, cell.unit === "task" ? `Task ${count(cell.cell)}` : cell.id),
    el("p", {}, badge(cell.status)),
    cell.retry ? el("p", { class: "notice", id: "retrying" }, cell.retry.sentence, " This is not final.") : null,
    cell.error ? error("Error", cell.error) : null,
    cell.last_error && cell.last_error !== cell.error
      ? error(pending ? "Error of the latest attempt" : "Error of an earlier attempt", cell.last_error)
      : null,
    el(
      "dl",
      {},
      row("Attempts", count(cell.attempts)),
      row("Interrupted", times(cell.interruptions)),
      row("Deferred", times(cell.deferrals)),
      row("Sent again", times(cell.resends)),
      row("Duration", cell.duration_ms === undefined ? null : duration(cell.duration_ms / 1000)),
      row("Waits until", cell.not_before && pending ? moment(cell.not_before, { seconds: true }) : null),
      row("Done", underway(cell) ? done : null),
      row("Items", cell.n_items === undefined ? null : count(cell.n_items)),
      row("Blank", cell.n_blank ? count(cell.n_blank) : null),
      row("Out of time", cell.n_timed_out ? count(cell.n_timed_out) : null),
      row("Summary", cell.summary),
      row("Input", code("input", cell.input)),
      row("Range of the input", code("range of the input", cell.reference)),
      row("HTTP status", cell.http_status),
      row("Type", cell.content_type),
      row("Length", cell.length === undefined ? null : bytes(cell.length)),
      row(
        "Output",
        cell.output_url ? el("a", { href: cell.output_url, rel: "noopener" }, cell.output.split("/").at(-1)) : null,
      ),
      row("Recovery", code("recovery", cell.recovery)),
      row("Trace", code("trace", cell.trace_id)),
      row("Id", code("id", cell.id)),
    ),
    cell.attempts
      ? [
          el("h3", {}, "Attempts"),
          lanes(cell),
          el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Attempts" }, attempts(cell)),
        ]
      : null,
    el("h3", {}, "History"),
    el(
      "ol",
      { class: "history" },
      history(cell).map(([at, what]) =>
        el("li", {}, what, " ", el("span", { class: "hint" }, moment(at, { seconds: true }))),
      ),
    ),
    letters,
    logs(path, cell),
  );
  if (cell.unit !== "chunk") return;
  followProgress(cell, done, path, () => turn === asked && done.isConnected);
  try {
    const found = await deadLetters(run?.run_id ?? path.split("/").at(-1), cell.id);
    if (turn !== asked || !found.length) return;
    replace(
      letters,
      el("h3", {}, "Dead letters"),
      el(
        "ul",
        {},
        found.map((letter) =>
          el(
            "li",
            {},
            el(
              "a",
              {
                href: `/console/dead-letters?run_id=${encodeURIComponent(letter.run_id)}&letter=${encodeURIComponent(`${letter.day}/${letter.message_id}`)}`,
              },
              letter.source_queue ?? "dead letter",
            ),
            " ",
            moment(letter.archived_at, { seconds: true }),
            letter.error ? el("pre", {}, letter.error) : null,
          ),
        ),
      ),
    );
  } catch (problem) {
    if (turn === asked)
      replace(letters, el("p", { class: "hint" }, `Dead letters: ${problem.detail ?? problem.message}`));
  }
}

// The archive of dead letters: the list with its causes, one record, and recoveries of chosen dead letters. The address
// holds the filters, the record that is shown and the recoveries that are followed.
import { get, newKey, post } from "./api.js";
import { badge, byId, count, el, empty, field, focusOn, given, moment, notice, replace } from "./dom.js";
import { poll, saysState } from "./live.js";
import { table } from "./tables.js";

// Number of dead letters that are listed at first and added by "Show more", and number of causes in the summary.
const PAGE = 200;
const CAUSES = 20;
const REFRESH_SECONDS = 10;
// Seconds between two polls of a recovery.
const FOLLOW_SECONDS = 1;

const form = byId("filters", HTMLFormElement);
const chosen = new Set();
let letters = [];
let limit = PAGE;

// ---- the address

const address = () => new URLSearchParams(location.search);
for (const [name, value] of address()) {
  if (field(form, name)) field(form, name).value = value;
}
const filters = () => given(form);
const followed = () => address().getAll("recovery");

function keepAddress({ letter = null, recoveries = followed() } = {}) {
  const query = new URLSearchParams(filters());
  if (letter) query.set("letter", letter);
  for (const id of recoveries) query.append("recovery", id);
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
}

// ---- the list

const name = (letter) => `${letter.day}/${letter.message_id}`;
const link = (letter, ...what) =>
  el("button", { type: "button", class: "linklike", onclick: () => showLetter(name(letter)) }, what);
const runLink = (letter) =>
  letter.run_id
    ? el("a", { href: `/console/runs/${encodeURIComponent(letter.run_id)}` }, letter.name ?? letter.run_id.slice(0, 8))
    : "–";

function showCauses(more) {
  const causes = new Map();
  for (const letter of letters) {
    const key = JSON.stringify([letter.day, letter.source_queue ?? "", letter.error ?? ""]);
    causes.set(key, (causes.get(key) ?? 0) + 1);
  }
  const rows = [...causes]
    .map(([key, number]) => [...JSON.parse(key), number])
    .sort((a, b) => b[0].localeCompare(a[0]) || b[3] - a[3]);
  const narrow = (day, queue, error) => {
    field(form, "first").value = field(form, "last").value = day;
    field(form, "queue").value = queue;
    field(form, "error").value = error.slice(0, 200);
    changed();
  };
  replace(
    byId("causes"),
    rows.length === 0
      ? el("p", { class: "hint" }, "Nothing to count.")
      : [
          table(
            "Dead letters by day, queue and error",
            [["Day (UTC)", "nowrap"], ["Queue"], ["Error", "wide"], ["Dead letters", "number"]],
            rows
              .slice(0, CAUSES)
              .map(([day, queue, error, number]) => [
                day,
                queue || "–",
                el(
                  "button",
                  { type: "button", class: "linklike", onclick: () => narrow(day, queue, error) },
                  error || "unknown error",
                ),
                count(number),
              ]),
          ),
          rows.length > CAUSES || more
            ? el(
                "p",
                { class: "hint" },
                `Only the ${count(letters.length)} newest dead letters, listed below, are counted. They have ${count(rows.length)} causes.`,
              )
            : null,
        ],
  );
  byId("causes").setAttribute("aria-busy", "false");
}

function showList(more) {
  const keys = new Set(letters.map((letter) => letter.key));
  for (const key of chosen) if (!keys.has(key)) chosen.delete(key);
  const focused = document.activeElement?.getAttribute("data-key");
  const eligible = letters.filter((letter) => letter.run_id);
  const all = el("input", {
    type: "checkbox",
    "aria-label": "Choose all that are listed",
    "data-key": "all",
    onchange: () => {
      for (const letter of eligible) all.checked ? chosen.add(letter.key) : chosen.delete(letter.key);
      showList(more);
    },
  });
  all.checked = eligible.length > 0 && eligible.every((letter) => chosen.has(letter.key));
  const box = (letter) => {
    const input = el("input", {
      type: "checkbox",
      "aria-label": `Choose ${letter.message_id}`,
      "data-key": letter.key,
      disabled: !letter.run_id,
      title: letter.run_id ? null : "It names no run, so it cannot be recovered.",
      onchange: () => {
        input.checked ? chosen.add(letter.key) : chosen.delete(letter.key);
        showChosen();
      },
    });
    input.checked = chosen.has(letter.key);
    return input;
  };
  const columns = [
    [all],
    ["Archived", "nowrap"],
    ["Queue"],
    ["Run"],
    ["Chunk"],
    ["Error", "wide"],
    ["Receives", "number"],
  ];
  replace(
    byId("list"),
    letters.length === 0
      ? empty(
          Object.keys(filters()).length ? "No dead letter matches these filters." : "No dead letters.",
          Object.keys(filters()).length
            ? "Clear a filter to see more."
            : "A message that its queue moves to the dead-letter queue appears here, with the reason.",
        )
      : table(
          "Dead letters, the newest first",
          columns,
          letters.map((letter) => [
            box(letter),
            link(letter, letter.archived_at ? moment(letter.archived_at) : letter.day),
            letter.source_queue ?? "–",
            runLink(letter),
            letter.chunk_id ?? "–",
            [
              letter.error ?? "unknown error",
              letter.recovery_failed ? el("div", { class: "failed" }, "A recovery of it failed.") : null,
            ],
            count(letter.receive_count),
          ]),
        ),
  );
  byId("list").setAttribute("aria-busy", "false");
  byId("unreadable").hidden = eligible.length === letters.length;
  if (focused) focusOn(byId("list"), `[data-key="${CSS.escape(focused)}"]`);
  byId("more").hidden = !more;
  showChosen();
}

function showChosen() {
  byId("recover", HTMLButtonElement).disabled = chosen.size === 0;
  byId("chosen").textContent = chosen.size === 0 ? "None chosen." : `${count(chosen.size)} chosen.`;
}

async function load() {
  const wanted = filters();
  const found = [];
  let cursor;
  do {
    const page = await get("/dead-letters", { ...wanted, limit: Math.min(PAGE, limit - found.length), cursor });
    found.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor && found.length < limit);
  letters = found;
  showCauses(Boolean(cursor));
  showList(Boolean(cursor));
}

// ---- one record

async function showLetter(which) {
  const dialog = byId("letter", HTMLDialogElement);
  keepAddress({ letter: which });
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  try {
    const letter = await get(`/dead-letters/${which.split("/").map(encodeURIComponent).join("/")}`);
    const { body = "", ...record } = letter.record;
    const facts = [
      ["Queue", letter.source_queue ?? "–"],
      ["Run", runLink(letter)],
      ["Chunk", letter.chunk_id ?? "–"],
      ["Archived", moment(letter.archived_at, { seconds: true })],
      ["Receives", count(letter.receive_count)],
      ["Recovery", letter.recovery ?? "–"],
    ];
    replace(
      dialog,
      el("h2", { id: "letter-heading" }, "Dead letter"),
      el("p", { class: "sub" }, letter.message_id),
      el(
        "p",
        { class: "notice error" },
        letter.error ?? "The error is unknown: the worker died, or the attempt may succeed later.",
      ),
      el(
        "dl",
        { class: "facts" },
        facts.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))),
      ),
      el("h3", {}, "Message"),
      el("pre", { tabindex: "0", role: "region", "aria-label": "Message" }, pretty(body)),
      el("h3", {}, "Record"),
      el("pre", { tabindex: "0", role: "region", "aria-label": "Record" }, JSON.stringify(record, null, 2)),
      el("div", { class: "actions" }, close),
    );
  } catch (problem) {
    replace(
      dialog,
      el("h2", { id: "letter-heading" }, "Dead letter"),
      el("p", { class: "notice error" }, problem.detail ?? String(problem)),
      el("p", {}, "A recovery may have moved it."),
      el("div", { class: "actions" }, close),
    );
  }
  if (!dialog.open) dialog.showModal();
}
byId("letter").addEventListener("close", () => keepAddress());

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// ---- recoveries

// One request for each run, with its chosen dead letters.
function requests() {
  const byRun = new Map();
  for (const letter of letters) {
    if (chosen.has(letter.key)) byRun.set(letter.run_id, [...(byRun.get(letter.run_id) ?? []), letter.key]);
  }
  return [...byRun].map(([run_id, keys]) => ({ run_id, keys }));
}

const ask = (request) => post("/dead-letters/recover", request, { idempotencyKey: newKey() });
const operationOf = (accepted) => accepted.status_url.split("/").pop();

async function ended(id, stillWanted) {
  for (;;) {
    const operation = await get(`/recoveries/${encodeURIComponent(id)}`);
    if (operation.status === "completed" || !stillWanted()) return operation;
    await new Promise((resolve) => {
      setTimeout(resolve, FOLLOW_SECONDS * 1000);
    });
  }
}

async function preview() {
  const dialog = byId("preview", HTMLDialogElement);
  const wanted = requests();
  const outcome = el("div", { "aria-live": "polite" }, el("p", {}, "Counting…"));
  const go = el("button", { type: "button", disabled: true, onclick: () => send() }, "Recover");
  replace(
    dialog,
    el("h2", { id: "preview-heading" }, `Recover ${count(chosen.size)} dead letters`),
    outcome,
    el(
      "div",
      { class: "actions" },
      el("button", { type: "button", class: "secondary", onclick: () => dialog.close() }, "Close"),
      go,
    ),
  );
  dialog.showModal();

  async function send() {
    go.disabled = true;
    try {
      const started = [];
      for (const request of wanted) started.push(operationOf(await ask(request)));
      chosen.clear();
      keepAddress({ recoveries: [...followed(), ...started] });
      dialog.close();
      follow();
      polling.again();
    } catch (problem) {
      replace(outcome, el("p", { class: "notice error" }, problem.detail ?? String(problem)));
      go.disabled = false;
    }
  }

  try {
    const counts = { n_sent: 0, n_settled: 0, n_failed: 0, n_left: 0 };
    for (const request of wanted) {
      const operation = await ended(operationOf(await ask({ ...request, dry_run: true })), () => dialog.open);
      for (const key of Object.keys(counts)) counts[key] += operation[key];
    }
    replace(
      outcome,
      el(
        "ul",
        {},
        el("li", {}, `${count(counts.n_sent)} will be sent back to their queues.`),
        el("li", {}, `${count(counts.n_settled)} will be removed: their work is done.`),
        el("li", {}, `${count(counts.n_failed)} cannot be sent and will be marked as failed recoveries.`),
        el(
          "li",
          {},
          `${count(counts.n_left)} will not be sent: they have been moved meanwhile, or their run was cancelled.`,
        ),
      ),
    );
    go.disabled = false;
    go.focus();
  } catch (problem) {
    replace(outcome, el("p", { class: "notice error" }, problem.detail ?? String(problem)));
  }
}

let following = null;
function follow() {
  following?.stop();
  const ids = followed();
  if (ids.length === 0) {
    replace(byId("recoveries"));
    return;
  }
  let last = "";
  following = poll(
    async () => {
      const operations = await Promise.all(ids.map((id) => get(`/recoveries/${encodeURIComponent(id)}`)));
      replace(
        byId("recoveries"),
        el(
          "div",
          { class: "card" },
          el("h2", {}, "Recoveries"),
          el(
            "div",
            { class: "scroll", tabindex: "0", role: "region", "aria-label": "Recoveries" },
            table(
              "Requested recoveries",
              [
                ["Status"],
                ["Run"],
                ["Records", "number"],
                ["Sent", "number"],
                ["Recovered", "number"],
                ["Failed again", "number"],
                ["Not sent", "number"],
              ],
              operations.map((operation) => [
                badge(operation.status),
                operation.run_id ? runLink(operation) : "all",
                count(operation.n_records),
                count(operation.n_sent),
                count(operation.n_recovered + operation.n_settled),
                count(operation.n_failed),
                count(operation.n_left),
              ]),
            ),
          ),
          el(
            "p",
            {},
            el(
              "button",
              {
                type: "button",
                class: "secondary",
                onclick: () => {
                  keepAddress({ recoveries: [] });
                  follow();
                },
              },
              "Hide",
            ),
          ),
        ),
      );
      const now = operations.map((operation) => operation.status).join();
      if (now !== last && last !== "") polling.again();
      last = now;
      if (operations.every((operation) => operation.status === "completed")) following.stop();
    },
    {
      seconds: FOLLOW_SECONDS,
      onState: ({ ok, problem }) => {
        if (!ok) notice(problem.detail ?? String(problem), { error: true });
      },
    },
  );
}

// ---- events of the page

const polling = poll(load, { seconds: REFRESH_SECONDS, onState: saysState(byId("live")) });
let typing = null;
function changed() {
  keepAddress();
  limit = PAGE;
  clearTimeout(typing);
  typing = setTimeout(() => polling.again(), 250);
}
form.addEventListener("input", changed);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  changed();
});
byId("more").addEventListener("click", () => {
  limit += PAGE;
  polling.again();
});
byId("recover").addEventListener("click", preview);
if (address().get("letter")) showLetter(address().get("letter"));
follow();

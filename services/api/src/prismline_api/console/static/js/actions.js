// The actions on a run. Each first shows its effect in a dialog.
import { get, newKey, post } from "./api.js";
import { byId, bytes, count, el, notice, plural, replace } from "./dom.js";

const WAIT_MS = 1000;
const wait = (ms) =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

let shown = "";

// Show the buttons of the actions that the server allows now. `look` returns {run, cells}.
export function actionsOf(place, look) {
  const { run } = look();
  const allowed = new Set(run.actions.filter((action) => action.allowed).map((action) => action.name));
  const buttons = /** @type {[string, string, (look: any) => void][]} */ (
    [
      allowed.has("cancel") ? ["Cancel", "danger", cancel] : null,
      allowed.has("continue") ? ["Continue", "secondary", resume] : null,
      allowed.has("retry") ? [run.unit === "task" ? "Recover failed" : "Rerun failed", "secondary", recover] : null,
      allowed.has("rerun_failed") ? ["Rerun failed", "secondary", rerun] : null,
      allowed.has("export") && (run.counts?.completed ?? 0) ? ["Export", "secondary", exportRun] : null,
    ].filter(Boolean)
  );
  const names = buttons.map(([name]) => name).join();
  if (names === shown) return; // keep the elements, so that the focus is not lost
  shown = names;
  replace(
    place,
    buttons.map(([name, kind, act]) => el("button", { type: "button", class: kind, onclick: () => act(look) }, name)),
  );
}

// Ask for confirmation. `preview` is a function that fills an element and returns whether there is anything to do.
async function ask(title, verb, preview) {
  const dialog = byId("dialog", HTMLDialogElement);
  const what = el("div", { "aria-live": "polite" }, el("p", {}, "Counting…"));
  const yes = el("button", { type: "submit", value: "yes", disabled: true }, verb);
  replace(
    dialog,
    el(
      "form",
      { method: "dialog" },
      el("h2", { id: "dialog-heading" }, title),
      what,
      el("div", { class: "actions" }, el("button", { type: "submit", value: "no", class: "secondary" }, "Close"), yes),
    ),
  );
  dialog.returnValue = "no";
  dialog.showModal();
  const closed = new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
  try {
    yes.disabled = !(await preview(what));
  } catch (problem) {
    replace(what, el("p", { class: "notice error" }, problem.detail ?? problem.message));
  }
  return closed;
}

async function attempt(act) {
  try {
    await act();
  } catch (problem) {
    notice(problem.detail ?? problem.message, { error: true });
  }
}

const path = (run) => `/runs/${encodeURIComponent(run.run_id)}`;
const list = (...lines) =>
  el(
    "ul",
    {},
    lines.filter(Boolean).map((line) => el("li", {}, line)),
  );

// What a cancellation does, by the counters of the run. The page may have read only a part of the cells: then numbers
// that come from them are lower limits.
export function effectOfCancel(run, cells) {
  const { total, completed = 0, failed = 0 } = run.counts ?? {};
  const [pending = 0, running = 0, , , deferred = 0] = cells?.counts() ?? [];
  const waiting = pending + deferred;
  const left = total === undefined ? waiting + running : Math.max(0, total - completed - failed);
  const whole = total !== undefined && cells?.about.complete && cells.length === total && waiting + running === left;
  const ended = `${count(completed)} completed keep their results. ${count(failed)} have failed.`;
  if (whole)
    return [
      `${plural(waiting, `waiting ${run.unit}`)} will not be processed.`,
      `${count(running)} in progress will be finished.`,
      ended,
    ];
  const few = total === undefined ? "At least " : "";
  return [
    `${few}${plural(left, run.unit)} ${left === 1 ? "has" : "have"} not ended. Those in progress${
      running ? `, at least ${count(running)},` : ""
    } will be finished, the others will not be processed.`,
    ended,
  ];
}

async function cancel(look) {
  const { run, cells } = look();
  const go = await ask(`Cancel ${run.name}?`, "Cancel the run", async (what) => {
    replace(what, list(...effectOfCancel(run, cells), "The run ends as cancelled. A recovery can continue it later."));
    return true;
  });
  if (!go) return;
  await attempt(async () => {
    await post(`${path(run)}/cancel`);
    notice("The run is being cancelled.");
  });
}

async function resume(look) {
  const { run } = look();
  const { total, completed = 0, failed = 0 } = run.counts ?? {};
  const go = await ask(`Continue ${run.name}?`, "Continue the run", async (what) => {
    replace(
      what,
      list(
        total === undefined
          ? `The ${run.unit}s that have not ended will be processed.`
          : `${plural(total - completed - failed, run.unit)} that have not ended will be processed.`,
        failed ? `${count(failed)} failed and are not tried again. They can be retried once the run continues.` : null,
        "The status stays cancelled until the run ends.",
      ),
    );
    return true;
  });
  if (!go) return;
  await attempt(async () => {
    const request = { run_id: run.run_id, retry: true, cancelled_at: run.cancelled_at };
    await post("/dead-letters/recover", request, { idempotencyKey: newKey() });
    notice("The run will continue as soon as its cancellation has been recorded.");
  });
}

async function operation(statusUrl, say) {
  for (;;) {
    const state = await get(statusUrl.replace(/^\/v1/, ""));
    say(state);
    if (state.status === "completed" || state.status === "failed") return state;
    await wait(WAIT_MS);
  }
}

async function recover(look) {
  const { run } = look();
  const [title, verb] =
    run.unit === "task"
      ? [`Recover what failed in ${run.name}?`, "Recover"]
      : [`Rerun what failed in ${run.name}?`, "Rerun"];
  const go = await ask(title, verb, async (what) => {
    const asked = await post("/dead-letters/recover", { run_id: run.run_id, retry: true, dry_run: true });
    const counted = await operation(asked.status_url, () => {});
    replace(
      what,
      list(
        `${plural(counted.n_sent, run.unit)} will be retried in this run, with the full number of attempts.`,
        run.counts.completed ? `${plural(run.counts.completed, `completed ${run.unit}`)} stay unchanged.` : null,
        counted.n_settled ? `${count(counted.n_settled)} have completed since and stay unchanged.` : null,
        counted.n_left ? `${count(counted.n_left)} will be left for another recovery.` : null,
        counted.n_failed ? `${count(counted.n_failed)} cannot be sent.` : null,
      ),
    );
    return counted.n_sent > 0 || counted.n_records > 0;
  });
  if (!go) return;
  await attempt(async () => {
    const asked = await post(
      "/dead-letters/recover",
      { run_id: run.run_id, retry: true },
      { idempotencyKey: newKey() },
    );
    const done = await operation(asked.status_url, (state) =>
      notice(`Recovery ${state.status}: ${count(state.n_sent)} sent again.`),
    );
    notice(`Recovery completed: ${count(done.n_sent)} sent again, ${count(done.n_failed)} could not be sent.`);
  });
}

async function rerun(look) {
  const { run } = look();
  const go = await ask(`Run the failed tasks of ${run.name} again?`, "Start a new run", async (what) => {
    const found = await get(`/jobs/${encodeURIComponent(run.job_id)}/rerun`, { only: "failed", run_id: run.run_id });
    replace(
      what,
      list(`A new run of the same job processes the failed tasks: ${count(found.count)}.`, "This run stays unchanged."),
    );
    return found.count > 0;
  });
  if (!go) return;
  await attempt(async () => {
    const started = await post(
      `/jobs/${encodeURIComponent(run.job_id)}/rerun`,
      { only: "failed", run_id: run.run_id },
      { idempotencyKey: newKey() },
    );
    location.assign(`/console/runs/${encodeURIComponent(started.run_id)}`);
  });
}

async function exportRun(look) {
  const { run } = look();
  const go = await ask(`Export ${run.name}?`, "Export", async (what) => {
    const form = run.workload === "spectra" ? "one Parquet file" : "one ZIP file";
    replace(
      what,
      list(
        `The results of ${plural(run.counts.completed, `completed ${run.unit}`)} are packed into ${form}.`,
        run.counts.failed ? `${count(run.counts.failed)} failed and are not included.` : null,
        "A link to it appears on this page. It is valid for 24 hours.",
      ),
    );
    return true;
  });
  if (!go) return;
  await attempt(async () => {
    let made = await post(`${path(run)}/export`, undefined, { idempotencyKey: newKey() });
    while (made.status !== "completed" && made.status !== "failed") {
      notice(
        `Export ${made.status}: ${count(made.entries)} of ${count(made.entries_total ?? run.counts.completed)} results.`,
      );
      await wait(WAIT_MS);
      made = await get(`${path(run)}/exports/${encodeURIComponent(made.export_id)}`);
    }
    if (made.status === "failed") notice(`The export failed: ${made.error}`, { error: true });
    else
      replace(
        byId("notices"),
        el(
          "p",
          { class: "notice" },
          "The export is ready: ",
          el("a", { href: made.url, rel: "noopener" }, `download (${bytes(made.bytes)})`),
          ".",
        ),
      );
  });
}

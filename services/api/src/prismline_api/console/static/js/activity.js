// The cards of a run that are fetched seldom: its failures by error, what happened to it, its source and parameters.

import { get } from "./api.js";
import { badge, byId, bytes, count, el, moment, plural, replace, valueText } from "./dom.js";
import { region, table } from "./tables.js";

/**
 * Show the failures of a run by their error. `open(cell)` opens a cell.
 * @param {string} path
 * @param {(cell: number) => void} open
 */
export async function showCauses(path, open) {
  const { items, count: failures, complete } = await get(`${path}/causes`);
  byId("causes").hidden = !items.length;
  if (!items.length) return;
  const rows = items.map((cause) => [
    `${complete ? "" : "at least "}${count(cause.count)}`,
    moment(cause.latest_at, { seconds: true }),
    cause.error,
    el("button", { type: "button", class: "secondary small", onclick: () => open(cause.cell) }, cause.example),
  ]);
  replace(
    byId("causes-body"),
    region(
      "Failures by error",
      table(
        "Failures by error",
        [["Failures", "number"], ["Latest"], ["Error of the latest", "wide"], ["Example"]],
        rows,
      ),
    ),
    complete ? null : el("p", { class: "hint" }, `Only ${plural(failures, "failure")} were looked at.`),
  );
}

const sentenceOf = (event) => [
  event.sentence,
  event.by ? el("span", { class: "hint" }, " by the key ", el("code", {}, event.by)) : null,
];

function recovery(each) {
  const counts = `${count(each.n_sent)} sent, ${count(each.n_recovered)} recovered, ${count(each.n_failed)} failed`;
  return ["Recovery", badge(each.status), each.dry_run ? "dry run" : counts, null];
}

function exported(each) {
  const done = each.entries_total ? `${count(each.entries)} of ${count(each.entries_total)} entries` : "";
  const link = each.url ? el("a", { href: each.url, rel: "noopener" }, `download, ${bytes(each.bytes)}`) : done;
  return ["Export", badge(each.status), each.error ?? link, moment(each.requested_at, { seconds: true })];
}

function posted(each) {
  const answer = each.http_status ? `the target answered ${each.http_status}` : "";
  const what = `${plural(each.attempts, "attempt")}. ${each.last_error ?? answer}`;
  return ["Webhook", badge(each.status), what, moment(each.delivered_at ?? each.last_attempt_at, { seconds: true })];
}

/**
 * Show what happened to a run, its source and its parameters. Returns whether something of it is not finished.
 * @param {string} path
 * @returns {Promise<boolean>}
 */
export async function showActivity(path) {
  const { events, recoveries, exports, webhooks, source = {}, params = {} } = await get(`${path}/activity`);
  byId("activity").hidden = false;
  const others = [...recoveries.map(recovery), ...exports.map(exported), ...webhooks.map(posted)];
  replace(
    byId("activity-body"),
    el(
      "ol",
      { class: "history" },
      events.map((event) =>
        el("li", {}, sentenceOf(event), " ", el("span", { class: "hint" }, moment(event.at, { seconds: true }))),
      ),
    ),
    others.length
      ? region(
          "Recoveries, exports and webhooks",
          table("Recoveries, exports and webhooks", [["What"], ["Status"], ["Progress", "wide"], ["When"]], others),
        )
      : null,
  );
  const given = [...Object.entries(source), ...Object.entries(params)];
  byId("given").hidden = !given.length;
  replace(
    byId("given-body"),
    given.map(([name, value]) => [el("dt", {}, name), el("dd", {}, el("code", {}, valueText(value)))]),
  );
  return [...recoveries, ...exports, ...webhooks].some(({ status }) => ["pending", "running"].includes(status));
}

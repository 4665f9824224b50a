// One run: how far it is, and what failed.
import { get } from "./api.js";
import { badge, byId, count, duration, el, moment, replace } from "./dom.js";
import { poll, saysState } from "./live.js";

const place = byId("run");
const runId = place.dataset.runId;

async function load() {
  const run = await get(`/runs/${encodeURIComponent(runId)}`);
  byId("name").textContent = run.name;
  const end = run.completed_at ? Date.parse(run.completed_at) : Date.now();
  const facts = [
    ["Status", badge(run.status)],
    ["Workload", run.workload],
    ["Completed", count(run.counts?.completed)],
    ["Failed", count(run.counts?.failed)],
    ["Total", count(run.counts?.total)],
    ["Duration", duration((end - Date.parse(run.created_at)) / 1000)],
    ["Submitted", moment(run.created_at)],
  ];
  replace(place, el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    run.error ? el("p", { class: "notice error" }, run.error) : null);
  place.setAttribute("aria-busy", "false");
}

poll(load, { seconds: 2, onState: saysState(byId("live")) });

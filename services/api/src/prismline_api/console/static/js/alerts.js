// Alerts: the alarms, what changed, and the mute.
import { get, post } from "./api.js";
import { byId, count, duration, el, empty, field, moment, notice, replace } from "./dom.js";
import { poll, saysState } from "./live.js";
import { alarmBadge, table } from "./tables.js";

const REFRESH_SECONDS = 5;
const form = byId("mute-form", HTMLFormElement);

const shortName = (name) => name.replace(/^prismline-[^-]+-/, "");

function showMute({ muted, muted_until: until, muted_problem: problem }) {
  byId("unmute").hidden = !muted && !problem;
  form.querySelector("[type=submit]").textContent = muted ? "Mute again" : "Mute";
  replace(
    byId("mute"),
    muted
      ? [
          el("strong", {}, "Muted"),
          " until ",
          moment(until),
          `, for ${duration((Date.parse(until) - Date.now()) / 1000)} more.`,
          " No alert is posted until then. Alarms that are still on at that time are posted.",
        ]
      : [
          el("strong", {}, "Alerts are posted"),
          " when an alarm goes on or off, and when a run fails.",
          problem ? ` ${problem} Unmute to repair it.` : "",
        ],
  );
}

function show(alerts) {
  showMute(alerts);
  replace(
    byId("alarms"),
    alerts.alarms.length === 0
      ? empty("No alarms.", "The stacks of the services declare alarms. Deploy the stacks.")
      : table(
          "Alarms, active ones first",
          [["State"], ["Alarm"], ["Queue", "nowrap"], ["Since", "nowrap"], ["Threshold", "number"], ["Reason", "wide"]],
          alerts.alarms.map((alarm) => [
            alarmBadge(alarm.state),
            [el("div", {}, shortName(alarm.name)), el("div", { class: "hint" }, alarm.description)],
            alarm.queue
              ? el(
                  "a",
                  { href: `/console/dead-letters?queue=${encodeURIComponent(alarm.queue.replace(/-dlq$/, ""))}` },
                  alarm.queue,
                )
              : "–",
            moment(alarm.since),
            count(alarm.threshold),
            alarm.reason,
          ]),
        ),
  );
  replace(
    byId("changes"),
    alerts.changes.length === 0
      ? empty("No changes.", "A change of an alarm appears here.")
      : table(
          "Changes of alarms, the newest first",
          [["When", "nowrap"], ["Alarm"], ["From"], ["To"], ["Reason", "wide"]],
          alerts.changes.map((change) => [
            moment(change.at, { seconds: true }),
            shortName(change.name),
            alarmBadge(change.before),
            alarmBadge(change.after),
            change.reason,
          ]),
        ),
  );
  for (const id of ["alarms", "changes"]) byId(id).setAttribute("aria-busy", "false");
}

const polling = poll(async () => show(await get("/alerts")), {
  seconds: REFRESH_SECONDS,
  onState: saysState(byId("live")),
});

async function change(path, body) {
  try {
    showMute(await post(path, body));
    notice("");
    polling.again();
  } catch (problem) {
    notice(problem.detail ?? String(problem), { error: true });
  }
}
form.addEventListener("submit", (event) => {
  event.preventDefault();
  change("/alerts/mute", { duration: field(form, "duration").value });
});
byId("unmute").addEventListener("click", () => change("/alerts/unmute"));

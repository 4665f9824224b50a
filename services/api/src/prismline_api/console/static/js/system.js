// The deployment: its queues now and since the page was opened, its processes, and the deployed services.
import { get } from "./api.js";
import { byId, count, duration, el, empty, moment, momentText, replace } from "./dom.js";
import { poll, saysState } from "./live.js";
import { table } from "./tables.js";

const REFRESH_SECONDS = 3;
const FUNCTIONS_SECONDS = 30;
// Samples that are kept: two hours.
const SAMPLES = 2400;
const HEIGHT = 200;
// The minimum length of the time axis, in seconds, and the distances between ticks of the other axes.
const SPAN = 60;
const COUNT_STEPS = [1, 2, 5]
  .flatMap((digit) => [0, 1, 2, 3, 4, 5, 6].map((power) => digit * 10 ** power))
  .sort((a, b) => a - b);
const AGE_STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];
const select = byId("queue", HTMLSelectElement);
const samples = []; // {at, queues}: the queues at a time, in Unix seconds

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function chart(place, series, format, incrs) {
  const make = () => {
    const axis = {
      stroke: colour("--soft"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line") },
    };
    replace(place);
    return new uPlot(
      {
        width: place.clientWidth || 320,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: {
            time: true,
            range: () => {
              const end = samples.at(-1)?.at ?? Date.now() / 1000;
              return [Math.min(samples[0]?.at ?? end, end - SPAN), end];
            },
          },
          y: { range: (_plot, _low, high) => [0, Math.max(incrs[2], (high ?? 0) * 1.1)] },
        },
        axes: [
          {
            ...axis,
            values: (_, times) => times.map((time) => momentText(time * 1000, { seconds: true, day: false })),
            space: 90,
          },
          { ...axis, size: 64, incrs, values: (_, values) => values.map(format) },
        ],
        series: [
          {},
          ...series.map(({ name, stroke, dash }) => ({
            label: name,
            stroke: colour(stroke),
            width: 2,
            dash,
            points: { show: false },
          })),
        ],
      },
      [[], ...series.map(() => [])],
      place,
    );
  };
  let plot = make();
  let data = plot.data;
  const again = () => {
    plot.destroy();
    plot = make();
    plot.setData(data);
  };
  new ResizeObserver(() => {
    if (place.clientWidth && place.clientWidth !== plot.width)
      plot.setSize({ width: place.clientWidth, height: HEIGHT });
  }).observe(place);
  document.addEventListener("prismline-theme", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  return (values) => {
    data = values;
    plot.setData(values);
  };
}

const DEPTHS = [
  { name: "waiting", key: "visible", stroke: "--running" },
  { name: "in flight", key: "in_flight", stroke: "--completed", dash: [6, 3] },
  { name: "delayed", key: "delayed", stroke: "--deferred", dash: [2, 3] },
  { name: "dead letters", key: "dead_letters", stroke: "--failed", dash: [10, 4, 2, 4] },
];
const drawDepth = chart(byId("depth"), DEPTHS, (value) => count(value), COUNT_STEPS);
const drawAge = chart(
  byId("age"),
  [{ name: "oldest", stroke: "--running" }],
  (value) => (value ? duration(value) : "0"),
  AGE_STEPS,
);

const oldest = (queues) => {
  const ages = queues.map((queue) => queue.oldest_seconds).filter((age) => age !== undefined);
  return ages.length ? Math.max(...ages) : null;
};
const total = (queues, key) => queues.reduce((sum, queue) => sum + queue[key], 0);

function draw() {
  const seen = samples.map(({ at, queues }) => ({
    at,
    queues: select.value ? queues.filter((queue) => queue.name === select.value) : queues,
  }));
  const times = seen.map(({ at }) => at);
  drawDepth([times, ...DEPTHS.map(({ key }) => seen.map(({ queues }) => total(queues, key)))]);
  drawAge([times, seen.map(({ queues }) => oldest(queues))]);
  const now = seen.at(-1)?.queues ?? [];
  replace(
    byId("depth-now"),
    DEPTHS.map(({ name, key }) =>
      el(
        "span",
        {},
        el("span", { class: `swatch ${name.replace(" ", "-")}`, "aria-hidden": "true" }),
        `${count(total(now, key))} ${name}`,
      ),
    ),
  );
  byId("age-now").textContent =
    oldest(now) === null ? "Now: there is no message, or its age is not published." : `Now: ${duration(oldest(now))}.`;
}

function show(system) {
  samples.push({ at: Date.parse(system.at) / 1000, queues: system.queues });
  if (samples.length > SAMPLES) samples.shift();
  for (const { name } of system.queues) {
    if (![...select.options].some((option) => option.value === name))
      select.append(el("option", { value: name }, name));
  }
  draw();
  const facts = [
    ["Environment", system.environment],
    ["api", system.api_version],
    ["Contracts", el("a", { href: "/console/contracts" }, system.contracts_version)],
    ["As of", moment(system.at, { seconds: true })],
  ];
  replace(
    byId("facts"),
    facts.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))),
  );
  replace(
    byId("queues"),
    system.queues.length === 0
      ? empty("No queues.", "Deploy the stacks, for example with `prismline up`.")
      : table(
          "Queues",
          [
            ["Queue"],
            ["Waiting", "number"],
            ["In flight", "number"],
            ["Delayed", "number"],
            ["Oldest", "number"],
            ["Dead letters", "number"],
            ["Oldest dead letter", "number"],
          ],
          system.queues.map((queue) => [
            queue.name,
            count(queue.visible),
            count(queue.in_flight),
            count(queue.delayed),
            duration(queue.oldest_seconds),
            queue.dead_letters ? el("span", { class: "failed" }, count(queue.dead_letters)) : "0",
            duration(queue.dead_letters_oldest_seconds),
          ]),
        ),
  );
  replace(
    byId("processes"),
    system.processes.length === 0
      ? el(
          "p",
          { class: "hint" },
          "No process is reported here. The supervisor of `prismline up` reports processes. On AWS, use CloudWatch. With containers, use ",
          el("code", {}, "docker compose ps"),
          ".",
        )
      : table(
          "Processes",
          [
            ["Process"],
            ["Service"],
            ["Version"],
            ["Running", "number"],
            ["Since"],
            ["Last report"],
            ["Restarts", "number"],
          ],
          system.processes.map((each) => [
            each.name,
            each.service,
            each.version ?? "–",
            each.running === 0 ? el("span", { class: "failed" }, "0") : count(each.running),
            moment(each.since),
            moment(each.heard_at, { seconds: true }),
            count(each.restarts),
          ]),
        ),
  );
  replace(
    byId("deployed"),
    system.deployed.length === 0
      ? el("p", { class: "hint" }, "No deployment was recorded here.")
      : table(
          "Deployed services",
          [["Service"], ["Version"], ["Image", "wide"], ["Deployed at"]],
          system.deployed.map((service) => [
            service.service,
            service.version ?? "–",
            el("span", { class: "mono" }, service.digest ?? "–"),
            moment(service.deployed_at),
          ]),
        ),
  );
  byId("queues").setAttribute("aria-busy", "false");
}

const shortCode = (code) => el("span", { class: "mono", title: code }, code.slice(0, 12));

function showFunctions(workloads) {
  const functions = workloads.filter(({ kind }) => kind === "function");
  replace(
    byId("functions"),
    functions.length === 0
      ? el("p", { class: "hint" }, "No function is registered here.")
      : table(
          "Functions",
          [["Function"], ["Code"], ["Registered"], ["Earlier code that runs still need", "wide"]],
          functions.map(({ name, code, registered_at, earlier = [] }) => [
            name,
            shortCode(code),
            moment(registered_at),
            earlier.length === 0
              ? "none"
              : earlier.map((each) =>
                  el(
                    "div",
                    {},
                    shortCode(each.code),
                    each.run_ids.map((id) => [" ", el("a", { href: `/console/runs/${id}` }, id)]),
                  ),
                ),
          ]),
        ),
  );
}

select.addEventListener("change", draw);
poll(async () => show(await get("/system")), { seconds: REFRESH_SECONDS, onState: saysState(byId("live")) });
poll(async () => showFunctions((await get("/workloads")).items), { seconds: FUNCTIONS_SECONDS });

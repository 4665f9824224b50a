// The timeline of a run: the numbers of waiting, running, completed and failed cells over time.
import { overTime } from "./cells.js";
import { momentText } from "./dom.js";
import { css, named } from "./scales.js";

const HEIGHT = 260;
/** @type {[name: string, label: string, colour: string, dash: number[]][]} */
const LINES = [
  ["pending", "waiting", "--pending", [2, 3]],
  ["completed", "completed", "--completed", []],
  ["failed", "failed", "--failed", [6, 3]],
  ["running", "in parallel", "--running", [10, 3, 2, 3]],
];
// Allowed distances between two ticks of an axis with whole numbers.
const WHOLE = Array.from({ length: 9 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const REDRAW_MS = 1000;
const DAY_SECONDS = 86_400;

export class TimeLine {
  constructor(place) {
    this.place = place;
    this.plot = null;
    this.drawnAt = 0;
    this.waiting = null;
    new ResizeObserver(() => this.plot?.setSize({ width: this.place.clientWidth, height: HEIGHT })).observe(place);
    const again = () => {
      this.plot?.destroy();
      this.plot = null;
      this.draw();
    };
    document.addEventListener("prismline-theme", again);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  }

  // Draws at most once per second: a run of 100,000 cells changes often.
  show(cells, run) {
    this.cells = cells;
    this.run = run;
    this.waiting ??= setTimeout(
      () => {
        this.waiting = null;
        this.drawnAt = performance.now();
        this.draw();
      },
      Math.max(0, this.drawnAt + REDRAW_MS - performance.now()),
    );
  }

  draw() {
    const { cells, run } = this;
    if (!cells?.length || cells.openedAt === null) return;
    let last = 0;
    for (let row = 0; row < cells.length; row += 1) {
      if (cells.started[row] >= 0)
        last = Math.max(last, cells.started[row] + Math.max(0, cells.duration[row]), cells.ended[row]);
    }
    const over = ["completed", "failed", "cancelled"].includes(run?.status) && !run.going_on;
    const until = over ? Math.max(last, 1000) : Math.max(last, Date.now() - cells.openedAt);
    const series = overTime(cells, until * 1.02);
    const data = [
      series.seconds.map((second) => second + cells.openedAt / 1000),
      ...LINES.map(([name]) => series[name]),
    ];
    if (this.plot) {
      this.plot.setData(data);
      return;
    }
    const ink = css(named("--ink"));
    const line = css(named("--line"));
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    this.plot = new window.uPlot(
      {
        width: this.place.clientWidth,
        height: HEIGHT,
        cursor: { drag: { x: true, y: false } },
        series: [
          {
            label: "time",
            value: (_, seconds) => (seconds === null ? "–" : momentText(seconds * 1000, { seconds: true })),
          },
          ...LINES.map(([name, label, colour, dash]) => ({
            label,
            stroke: css(named(colour)),
            width: 2,
            dash,
            scale: name === "running" ? "parallel" : "cells",
            points: { show: false },
            paths: window.uPlot.paths.stepped({ align: 1 }),
          })),
        ],
        scales: {
          cells: { range: (_plot, _least, most) => [0, Math.max(1, most)] },
          parallel: { range: (_plot, _least, most) => [0, Math.max(1, most * 1.1)] },
        },
        axes: [
          {
            ...axis,
            space: 90,
            values: (_, times) => {
              const several = times.at(-1) - times[0] > DAY_SECONDS;
              return times.map((time) => momentText(time * 1000, { seconds: !several, day: several }));
            },
          },
          { ...axis, incrs: WHOLE, scale: "cells", size: 70, label: "cells", labelSize: 18 },
          {
            ...axis,
            incrs: WHOLE,
            scale: "parallel",
            side: 1,
            size: 50,
            grid: { show: false },
            label: "in parallel",
            labelSize: 18,
          },
        ],
      },
      data,
      this.place,
    );
    const summary = `Over time: ${LINES.map(([name, label]) => `${label} ${series[name].at(-1)}`).join(", ")} at the end.`;
    this.plot.root.setAttribute("role", "img");
    this.plot.root.setAttribute("aria-label", summary);
  }
}

// A spectrum with its components, their sum and the residual, as charts and as a table.
import { badge, el, empty, replace } from "../dom.js";
import { shown } from "./scales.js";

// Okabe and Ito's colours, which people with any colour vision can distinguish.
const COMPONENTS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
// The second of two fits is dashed.
const DASH = [6, 4];
const HEIGHTS = { data: 260, residual: 130 };

// Charts of one spectrum, or of two that are compared, in `place`.
export class SpectrumCharts {
  constructor(place) {
    this.place = place;
    this.charts = [];
    /** @type {any[] | null} */
    this.spectra = null;
    this.names = [""];
    new ResizeObserver(() => {
      for (const chart of this.charts) chart.setSize({ width: this.width, height: chart.height });
    }).observe(place);
    document.addEventListener("prismline-theme", () => this.spectra && this.show(this.spectra, this.names));
  }

  get width() {
    return Math.max(200, this.place.clientWidth);
  }

  // spectra: one answer of /runs/{id}/spectra/{x}/{y}, or two that are compared. names: the names of their runs.
  show(spectra, names = [""]) {
    this.spectra = spectra;
    this.names = names;
    for (const chart of this.charts) chart.destroy();
    this.charts = [];
    replace(this.place);
    const first = spectra[0];
    const data = spectra.find((one) => one.data)?.data ?? null;
    const x = first.axis;
    const flip = x.length > 1 && x[1] < x[0]; // the chart needs an ascending axis
    const ordered = (values) => (flip ? [...values].reverse() : values);
    const style = getComputedStyle(this.place);
    const [ink, soft, line] = ["--ink", "--soft", "--line"].map((name) => style.getPropertyValue(name).trim());

    const series = [{}];
    const values = [ordered(x)];
    const add = (label, points, options) => {
      series.push({ label, points: { show: false }, spanGaps: false, ...options });
      values.push(ordered(points));
    };
    if (data) add("data", data, { stroke: soft, width: 1, paths: uPlot.paths.stepped({ align: 0 }) });
    spectra.forEach((spectrum, number) => {
      const { fit } = spectrum;
      if (!fit) return;
      const dash = number ? DASH : undefined;
      const name = names[number] ? ` of ${names[number]}` : "";
      if (spectra.length === 1) {
        for (const [index, component] of fit.components.entries())
          add(`component ${index + 1}`, curve(component, fit.line, x, fit.baseline), {
            stroke: COMPONENTS[index % COMPONENTS.length],
            width: 1.5,
            fill: fit.baseline ? undefined : `${COMPONENTS[index % COMPONENTS.length]}2e`,
          });
        if (fit.baseline) add(`baseline${name}`, fit.baseline, { stroke: soft, width: 1.5, dash: DASH });
        if (fit.components.length) add(`sum${name}`, fit.model, { stroke: ink, width: 2, dash });
      } else {
        add(`fit${name}`, fit.model, { stroke: COMPONENTS[number], width: 2, dash });
      }
    });
    const label = `${first.axis_name}${first.axis_unit ? ` (${first.axis_unit})` : ""}`;
    const axes = (named, unit) => [
      {
        stroke: soft,
        grid: { stroke: line, width: 1 },
        ticks: { stroke: line },
        label: named ? label : undefined,
        labelSize: 20,
        size: 36,
      },
      { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, label: unit, size: 56, labelSize: 20 },
    ];
    const chart = (height, title, rows, lines, more) => {
      const box = el("div", { class: "chart", role: "img", "aria-label": title });
      this.place.append(box);
      this.charts.push(
        new uPlot(
          {
            width: this.width,
            height,
            series: lines,
            cursor: { sync: { key: "spectrum" }, drag: { x: true, y: false } },
            scales: { x: { time: false } },
            legend: { live: false },
            ...more,
          },
          rows,
          box,
        ),
      );
    };
    chart(HEIGHTS.data, describe(first), values, series, { axes: axes(false, first.signal_unit || "data") });

    const residuals = spectra.filter((one) => one.fit?.residual);
    if (!residuals.length) return;
    const rms = residuals[0].fit.rms;
    const lines = [
      {},
      ...residuals.map((one, number) => ({
        label: `residual${residuals.length > 1 ? ` of ${names[spectra.indexOf(one)]}` : ""}`,
        points: { show: false },
        stroke: residuals.length > 1 ? COMPONENTS[number] : soft,
        width: 1,
        paths: uPlot.paths.stepped({ align: 0 }),
      })),
    ];
    const rows = [ordered(x), ...residuals.map((one) => ordered(one.fit.residual))];
    if (rms !== null) {
      for (const sign of [1, -1]) {
        lines.push({
          label: sign > 0 ? "noise, one standard deviation" : "",
          points: { show: false },
          stroke: COMPONENTS[0],
          width: 1,
          dash: DASH,
        });
        rows.push(x.map(() => sign * rms));
      }
    }
    chart(
      HEIGHTS.residual,
      `Residual: data minus the fit${rms === null ? "" : `; the noise is ${shown(rms)} ${first.signal_unit}`}`,
      rows,
      lines,
      { axes: axes(true, "residual"), legend: { show: residuals.length > 1, live: false } },
    );
  }
}

// The values of a component at the points of the axis. line: the lines of which it is the sum, or null. An optical
// depth flattens the sum. baseline: the values of the baseline there, on which the component stands, or nothing.
function curve(component, line, x, baseline) {
  const { offsets, weights } = line ?? { offsets: [0], weights: [1] };
  const least = 0.005 * component.amplitude.value * Math.max(...weights);
  return x.map((place, channel) => {
    const distances = offsets.map((offset) => (place - component.mean.value - offset) / component.stddev.value);
    const profile = distances.reduce((sum, distance, i) => sum + weights[i] * Math.exp(-0.5 * distance ** 2), 0);
    const depth = component.optical_depth?.value ?? 0;
    const height = component.amplitude.value * (depth > 0 ? -Math.expm1(-depth * profile) / depth : profile);
    if (height <= least) return null; // the tails would hide the baseline of other components
    return height + (baseline?.[channel] ?? 0);
  });
}

// One sentence about a spectrum, for people who do not see the chart.
export function describe(spectrum) {
  const where = `Pixel ${spectrum.x}, ${spectrum.y}`;
  const { fit, chunk } = spectrum;
  if (!chunk) return `${where}: its chunk does not exist yet.`;
  if (!fit) return `${where}: its chunk is ${chunk.status.replaceAll("_", " ")}, so there is no fit.`;
  const meanings = {
    empty: "nothing significant was found",
    blank: "the cube has no data here",
    timed_out: "the fit ran out of time and waits for a refit",
  };
  const n = fit.components.length;
  return `${where}: ${meanings[fit.status] ?? `${n} component${n === 1 ? "" : "s"}`}.`;
}

// A value with its uncertainty, both rounded to the second significant digit of the uncertainty.
function measured({ value, error }) {
  if (error === null || error === undefined) return shown(value);
  if (!(error > 0)) return `${shown(value)} ± ${shown(error)}`;
  const digits = Math.max(0, Math.min(12, 1 - Math.floor(Math.log10(error))));
  return `${value.toFixed(digits)} ± ${error.toFixed(digits)}`;
}

// The number of a chunk's cell on the page of its run: the number in the id of the chunk.
const cellOf = (chunkId) => Number(chunkId.replace("chunk-", ""));

// Facts about the spectrum and its fit, and errors of its chunk or its data.
export function facts(spectrum, runAddress) {
  const { fit, chunk } = spectrum;
  const rows = [
    chunk && [
      "Chunk",
      el("a", { href: `${runAddress}?cell=${cellOf(chunk.chunk_id)}` }, chunk.chunk_id),
      " ",
      badge(chunk.status),
    ],
    fit && ["Fit", fit.status.replaceAll("_", " "), fit.decomposer ? ` by ${fit.decomposer}` : ""],
    fit && ["Noise", `${shown(fit.rms)} ${spectrum.signal_unit}`],
    fit && ["Reduced chi-square", shown(fit.chi2_reduced)],
    fit && [
      "Flags",
      fit.flags.length ? fit.flags.map((name) => name.toLowerCase().replaceAll("_", " ")).join(", ") : "none",
    ],
  ].filter(Boolean);
  const why = chunk?.error ?? chunk?.last_error ?? spectrum.data_error;
  return [
    el(
      "dl",
      { class: "facts" },
      rows.map(([name, ...value]) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value))),
    ),
    chunk?.error || chunk?.last_error ? el("p", { class: "notice error" }, why) : null,
    spectrum.data_error ? el("p", { class: "notice error" }, spectrum.data_error) : null,
  ];
}

// The components as a table.
export function componentTable(spectrum, title = "Components") {
  const { fit } = spectrum;
  if (!fit?.components.length) return empty("No components", describe(spectrum));
  const { signal_unit: signal, axis_unit: unit } = spectrum;
  const headings = [
    ["#", ""],
    ["Amplitude", signal],
    ["Position", unit],
    ["Width (σ)", unit],
    ["Area", `${signal} ${unit}`.trim()],
  ];
  const names = ["amplitude", "mean", "stddev", "flux"];
  if (fit.components.some((component) => component.optical_depth)) {
    headings.push(["Optical depth", ""]);
    names.push("optical_depth");
  }
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": title },
    el(
      "table",
      {},
      el("caption", { class: "visually-hidden" }, "Components with one standard deviation"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          headings.map(([name, of]) => el("th", { scope: "col", class: "number" }, of ? `${name} (${of})` : name)),
        ),
      ),
      el(
        "tbody",
        {},
        fit.components.map((component, index) =>
          el(
            "tr",
            {},
            el(
              "th",
              { scope: "row", class: "number" },
              el("span", { class: `swatch component-${index % COMPONENTS.length}`, "aria-hidden": "true" }),
              index + 1,
            ),
            names.map((name) => el("td", { class: "number" }, measured(component[name]))),
          ),
        ),
      ),
    ),
  );
}

// Two runs of one cube: their maps, the difference of the maps, and both fits of the chosen pixel.
import { get } from "./api.js";
import { byId, count, el, empty, field, replace, valueText } from "./dom.js";
import { addressOf, chosenPixel, keepView, rememberIn } from "./maps/address.js";
import { MapCanvas } from "./maps/canvas.js";
import { controls, Look, legend, worded } from "./maps/panel.js";
import { shown } from "./maps/scales.js";
import { Sky } from "./maps/sky.js";
import { componentTable, describe, facts, SpectrumCharts } from "./maps/spectrum.js";
import { DifferenceSource, TileSource } from "./maps/tiles.js";
import { View } from "./maps/view.js";
import { region, table } from "./tables.js";

const form = byId("runs", HTMLFormElement);
const parameters = new URLSearchParams(location.search);
const look = new Look(parameters);
const path = (run) => `/runs/${encodeURIComponent(run)}`;

// Milliseconds until the spectra of a newly chosen pixel are requested, and until incomplete data are requested again.
const REST_MS = 60;
const AGAIN_MS = 300;
const NAMES = ["A", "B"];

// List the runs to choose from: the latest ones of spectra, and those in the address.
async function offer() {
  const { items } = await get("/runs", { workload: "spectra", limit: 100 });
  for (const name of ["a", "b"]) {
    const select = field(form, name);
    const { chosen } = select.dataset;
    const listed = items.some((run) => run.run_id === chosen);
    replace(
      select,
      el("option", { value: "" }, "choose a run"),
      chosen && !listed ? el("option", { value: chosen, selected: true }, chosen) : null,
      items.map((run) =>
        el(
          "option",
          { value: run.run_id, selected: run.run_id === chosen },
          `${run.name} · ${run.run_id.slice(0, 8)} · ${new Date(run.created_at).toLocaleString()}`,
        ),
      ),
    );
  }
  return [field(form, "a").value, field(form, "b").value];
}

function say(title, text) {
  replace(byId("problem"), empty(title, text));
  byId("problem").hidden = false;
}

// What the runs were submitted with, and where that differs.
async function showGiven(runs) {
  const activities = await Promise.all(runs.map((run) => get(`${path(run)}/activity`)));
  const given = activities.map(({ source = {}, params = {} }) => ({ ...source, ...params }));
  const names = [...new Set(given.flatMap(Object.keys))].filter((name) => {
    const [one, other] = given.map((each) => JSON.stringify(each[name]));
    return one !== other;
  });
  const value = (each, name) => (name in each ? el("code", {}, valueText(each[name])) : "–");
  const rows = names.map((name) => [name, ...given.map((each) => value(each, name))]);
  replace(
    byId("given-body"),
    rows.length
      ? region("Differences", table("Differences of source and parameters", [["Name"], ["A"], ["B"]], rows))
      : el("p", {}, "They are the same in both runs."),
  );
  byId("given").hidden = false;
}

class Comparison {
  constructor(abouts) {
    this.abouts = abouts;
    const [about] = abouts;
    this.view = new View(about.nx, about.ny);
    keepView(this.view, parameters);
    this.charts = new SpectrumCharts(byId("charts"));
    this.sources = [];
    this.ranges = [];
    // The map of chunk states has no values that could be compared.
    replace(
      byId("controls"),
      controls(
        look,
        about.maps.filter((entry) => entry.name !== "chunks"),
      ),
    );
    byId("compare").hidden = false;
    byId("shape").textContent = `${about.nx} × ${about.ny} pixels, ${about.n_channels} channels`;
    for (const [index, one] of abouts.entries())
      replace(
        byId(`title-${NAMES[index].toLowerCase()}`),
        `${NAMES[index]}: `,
        el("a", { href: `/console/runs/${encodeURIComponent(one.run_id)}/cube` }, one.name),
        ` ${one.run_id.slice(0, 8)}`,
      );
    this.canvases = ["a", "b", "difference"].map(
      (id) => new MapCanvas(byId(`map-${id}`, HTMLCanvasElement), this.view, look.style()),
    );
    const remember = rememberIn(() => ({ ...look.parameters(), ...addressOf(this.view) }));
    look.addEventListener("change", () => {
      this.show();
      remember();
    });
    this.view.onChange((what) => {
      if (what === "pixel") this.choose();
      if (what !== "hover") remember();
      this.readOut();
    });
    for (const [id, act] of /** @type {[string, () => void][]} */ ([
      ["zoom-in", () => this.view.zoom(1.5, ...this.canvases[0].middle())],
      ["zoom-out", () => this.view.zoom(1 / 1.5, ...this.canvases[0].middle())],
      ["zoom-all", () => this.view.fit(this.canvases[0].size.width, this.canvases[0].size.height)],
    ]))
      byId(id).addEventListener("click", act);
    if (about.celestial)
      get(`${path(about.run_id)}/sky`).then(
        (lattice) => {
          this.sky = new Sky(lattice);
          this.readOut();
        },
        () => {},
      );
    this.show();
    const pixel = chosenPixel(parameters);
    if (pixel) this.view.choose(...pixel);
    else
      replace(
        byId("fits"),
        empty("No pixel is chosen", "Click on a map, or focus one with Tab and press an arrow key."),
      );
  }

  get map() {
    return look.chosen.map;
  }

  show() {
    if (this.sources[0]?.name !== this.map) {
      for (const source of this.sources.slice(0, 2)) source.close();
      const pair = this.abouts.map((about) => new TileSource(about, this.map, () => this.changed()));
      this.sources = [...pair, new DifferenceSource(...pair)];
      Object.assign(this, { ranges: [], differences: null });
      this.load();
    }
    this.paint();
  }

  // Both maps share one colour scale. The scale of the difference has zero in the middle.
  paint() {
    const known = this.ranges.filter((range) => range?.low !== undefined);
    const both = known.length
      ? { low: Math.min(...known.map((range) => range.low)), high: Math.max(...known.map((range) => range.high)) }
      : null;
    look.range = both;
    look.dispatchEvent(new Event("range"));
    const style = look.style(both);
    const { low = 0, high = 0 } = this.differences ?? {};
    const reach = Math.max(Math.abs(low), Math.abs(high)) || (style.high - style.low) / 10;
    const gap = {
      colours: "difference",
      stretch: "linear",
      invert: false,
      low: -reach,
      high: reach,
      known: Boolean(this.differences),
    };
    for (const [index, source] of this.sources.entries()) this.canvases[index].show(source, index < 2 ? style : gap);
    const { unit } = this.entry;
    legend(byId("legend-a"), style, unit);
    legend(byId("legend-b"), style, unit);
    legend(byId("legend-difference"), gap, unit);
    this.readOut();
  }

  get entry() {
    return this.abouts[0].maps.find((entry) => entry.name === this.map);
  }

  // Request the ranges and the differences until no chunk is pending.
  load() {
    const { map } = this;
    const [a, b] = this.abouts.map((about) => path(about.run_id));
    const other = encodeURIComponent(this.abouts[1].run_id);
    const until = async (address, take) => {
      for (;;) {
        const found = await get(address).catch(() => null);
        if (this.map !== map) return;
        if (found) take(found);
        if (found && !found.pending) return;
        await new Promise((resolve) => {
          setTimeout(resolve, found ? AGAIN_MS : 10 * AGAIN_MS);
        });
      }
    };
    until(`${a}/maps/${map}`, (range) => {
      this.ranges[0] = range;
      this.paint();
    });
    until(`${b}/maps/${map}`, (range) => {
      this.ranges[1] = range;
      this.paint();
    });
    until(`${a}/maps/${map}/differences/${other}`, (found) => {
      this.differences = found;
      this.paint();
      this.summarise();
    });
    until(`${a}/maps/components/differences/${other}`, (found) => {
      this.counts = found;
      this.summarise();
    });
  }

  summarise() {
    const { differences, counts } = this;
    const { title, unit } = this.entry;
    const more = (found) => (found.pending ? ` (${found.pending} chunks are still to be read)` : "");
    const rows = [
      differences && ["Pixels with a value in both", count(differences.n_values) + more(differences)],
      differences && [`Median difference of ${title.toLowerCase()}`, `${shown(differences.median)} ${unit}`.trim()],
      differences && [
        "98 % of the differences",
        `${shown(differences.low)} to ${shown(differences.high)} ${unit}`.trim(),
      ],
      counts && [
        "Pixels with different numbers of components",
        counts.n_values
          ? `${((100 * counts.n_different) / counts.n_values).toFixed(1)} % (${count(counts.n_different)} of ${count(counts.n_values)})${more(counts)}`
          : "–",
      ],
    ].filter(Boolean);
    replace(
      byId("summary"),
      rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
    );
  }

  changed() {
    for (const canvas of this.canvases) canvas.draw();
    this.readOut();
    const { pending, problem } = this.sources[2];
    byId("progress").textContent = problem
      ? problem.detail
      : pending
        ? `Reading ${pending} chunk${pending === 1 ? "" : "s"} …`
        : "";
  }

  readOut() {
    const pixel = this.view.hover ?? this.view.pixel;
    if (!pixel || !this.sources.length) {
      byId("readout").textContent = "Point at a map, or press an arrow key on it.";
      return;
    }
    const words = this.sources.map((source, index) => {
      const { value } = source.valueAt(...pixel);
      return `${["A", "B", "difference"][index]} ${index === 2 ? shown(value) : worded(this.map, value, this.entry.unit, this.ranges[index]?.shades)}`;
    });
    byId("readout").textContent = [`x ${pixel[0]}, y ${pixel[1]}`, this.sky?.text(...pixel), ...words]
      .filter(Boolean)
      .join(" · ");
  }

  choose() {
    clearTimeout(this.asked);
    this.asked = setTimeout(() => this.loadSpectra(), REST_MS);
  }

  async loadSpectra() {
    const [x, y] = this.view.pixel;
    const current = () => this.view.pixel[0] === x && this.view.pixel[1] === y;
    try {
      const spectra = await Promise.all(this.abouts.map((about) => get(`${path(about.run_id)}/spectra/${x}/${y}`)));
      if (!current()) return;
      byId("pixel").textContent = `Both fits at x ${x}, y ${y}`;
      byId("description").textContent = spectra
        .map((spectrum, index) => `${NAMES[index]}: ${describe(spectrum)}`)
        .join(" ");
      this.charts.show(spectra, NAMES);
      replace(
        byId("fits"),
        spectra.map((spectrum, index) =>
          el(
            "div",
            {},
            el("h3", {}, `Fit of ${NAMES[index]}`),
            facts(spectrum, `/console/runs/${encodeURIComponent(spectrum.run_id)}`),
            componentTable(spectrum, `Components of ${NAMES[index]}`),
          ),
        ),
      );
    } catch (problem) {
      if (!current()) return;
      replace(byId("fits"), el("p", { class: "notice error" }, problem.detail ?? problem.message));
      if (problem.status === 0 || problem.status >= 429) this.asked = setTimeout(() => this.loadSpectra(), 2000);
    }
  }
}

async function open() {
  const runs = await offer();
  if (!runs[0] || !runs[1]) {
    say("Choose two runs", "Choose two runs of one cube, for example with two presets or two decomposers.");
    return;
  }
  await showGiven(runs);
  const abouts = await Promise.all(runs.map((run) => get(`${path(run)}/maps`)));
  const [one, other] = abouts;
  if (one.nx !== other.nx || one.ny !== other.ny || one.n_channels !== other.n_channels) {
    say(
      "These runs have different cubes",
      `One has ${one.nx} × ${one.ny} pixels and ${one.n_channels} channels, the other ` +
        `${other.nx} × ${other.ny} and ${other.n_channels}. Choose two runs of one cube.`,
    );
    return;
  }
  if (!one.maps.some((entry) => entry.name === look.chosen.map) || look.chosen.map === "chunks")
    look.chosen.map = one.maps[0].name;
  new Comparison(abouts);
}

open().catch((problem) => say("The runs cannot be compared", problem.detail ?? problem.message));

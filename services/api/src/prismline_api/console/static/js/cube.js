// The cube of a run: its maps, and the spectrum of the chosen pixel.
import { get } from "./api.js";
import { byId, el, empty, replace } from "./dom.js";
import { poll, saysState } from "./live.js";
import { addressOf, chosenPixel, keepView, rememberIn } from "./maps/address.js";
import { MapCanvas } from "./maps/canvas.js";
import { controls, Look, legend, worded } from "./maps/panel.js";
import { Sky } from "./maps/sky.js";
import { componentTable, describe, facts, SpectrumCharts } from "./maps/spectrum.js";
import { TileSource } from "./maps/tiles.js";
import { View } from "./maps/view.js";

const place = byId("cube");
const runId = place.dataset.runId;
const path = `/runs/${encodeURIComponent(runId)}`;
const parameters = new URLSearchParams(location.search);
const look = new Look(parameters);

// Milliseconds after which the spectrum of a newly chosen pixel is requested, unless another one is chosen.
const REST_MS = 60;
// Milliseconds until incomplete data are requested again.
const AGAIN_MS = 300;

let about = null;
let view = null;
let canvas = null;
let source = null;
let sky = null;
let asked = null;

const charts = new SpectrumCharts(byId("charts"));

async function open() {
  about = await get(`${path}/maps`);
  byId("name").textContent = about.name;
  document.title = `Cube of ${about.name} · Prismline`;
  if (!about.maps.some((entry) => entry.name === look.chosen.map)) look.chosen.map = about.maps[0].name;
  view = new View(about.nx, about.ny);
  keepView(view, parameters);
  replace(byId("controls"), controls(look, about.maps));
  byId("problem").hidden = true;
  place.hidden = false;
  canvas = new MapCanvas(byId("map", HTMLCanvasElement), view, look.style());
  look.addEventListener("change", () => {
    showMap();
    remember();
  });
  view.onChange((what) => {
    if (what === "pixel") choose();
    if (what !== "hover") remember();
    readOut();
  });
  showMap();
  if (about.celestial)
    get(`${path}/sky`).then(
      (lattice) => {
        sky = new Sky(lattice);
        readOut();
      },
      () => {},
    );
  const pixel = chosenPixel(parameters);
  if (pixel) view.choose(...pixel);
  else choose();
}

const remember = rememberIn(() => ({ ...look.parameters(), ...addressOf(view) }));

// ---- the map

async function showMap() {
  const { map } = look.chosen;
  if (source?.name !== map) {
    source?.close();
    source = new TileSource(about, map, changed);
    look.range = null;
    canvas.show(source, look.style());
    await loadRange();
  }
  canvas.show(source, look.style());
  legend(byId("legend"), look.style(), look.range?.unit, look.range?.shades);
  readOut();
}

// Load the limits of the colours. They change until all completed chunks have been read.
async function loadRange() {
  const { map } = look.chosen;
  for (;;) {
    const range = await get(`${path}/maps/${map}`).catch(() => null);
    if (look.chosen.map !== map) return;
    if (range) {
      look.range = range;
      canvas.show(source, look.style());
      legend(byId("legend"), look.style(), range.unit, range.shades);
      look.dispatchEvent(new Event("range"));
    }
    if (range && !range.pending) return;
    await new Promise((resolve) => {
      setTimeout(resolve, range ? AGAIN_MS : 10 * AGAIN_MS);
    });
  }
}

function changed() {
  canvas.draw();
  readOut();
  const { pending, problem } = source;
  byId("progress").textContent = problem
    ? problem.detail
    : pending
      ? `Reading ${pending} chunk${pending === 1 ? "" : "s"} …`
      : "";
}

function readOut() {
  const pixel = view.hover ?? view.pixel;
  if (!pixel) {
    byId("readout").textContent = "Point at the map, or press an arrow key.";
    return;
  }
  const { value, exact } = source.valueAt(...pixel);
  const words = worded(source.name, value, look.range?.unit, look.range?.shades);
  byId("readout").textContent = [
    `x ${pixel[0]}, y ${pixel[1]}`,
    sky?.text(...pixel),
    `${exact || value === undefined ? "" : "about "}${words}`,
  ]
    .filter(Boolean)
    .join(" · ");
}

// ---- the spectrum

function choose() {
  clearTimeout(asked);
  if (!view.pixel) {
    replace(
      byId("facts"),
      empty("No pixel is chosen", "Click on the map, or focus it with Tab and press an arrow key."),
    );
    return;
  }
  asked = setTimeout(loadSpectrum, REST_MS);
}

async function loadSpectrum() {
  const [x, y] = view.pixel;
  const current = () => view.pixel[0] === x && view.pixel[1] === y;
  byId("spectrum").setAttribute("aria-busy", "true");
  try {
    const spectrum = await get(`${path}/spectra/${x}/${y}`);
    if (!current()) return;
    byId("pixel").textContent = `Spectrum at x ${x}, y ${y}`;
    byId("description").textContent = describe(spectrum);
    charts.show([spectrum]);
    replace(byId("facts"), facts(spectrum, `/console/runs/${encodeURIComponent(runId)}`));
    replace(byId("components"), componentTable(spectrum));
  } catch (problem) {
    if (!current()) return;
    replace(byId("facts"), el("p", { class: "notice error" }, problem.detail ?? problem.message));
    if (problem.status === 0 || problem.status >= 429) asked = setTimeout(loadSpectrum, 2000);
  }
  byId("spectrum").setAttribute("aria-busy", "false");
}

// ---- buttons and updates

for (const [id, act] of /** @type {[string, () => void][]} */ ([
  ["zoom-in", () => view.zoom(1.5, ...canvas.middle())],
  ["zoom-out", () => view.zoom(1 / 1.5, ...canvas.middle())],
  ["zoom-all", () => view.fit(canvas.size.width, canvas.size.height)],
]))
  byId(id).addEventListener("click", () => view && act());

const says = saysState(byId("live"));
const live = poll(
  async () => {
    if (!about) {
      await open();
    } else {
      const before = JSON.stringify(about.chunks);
      const now = await get(`${path}/maps`);
      about.chunks = now.chunks;
      about.final = now.final;
      if (before !== JSON.stringify(now.chunks)) {
        source.refresh();
        loadRange();
        if (view.pixel) loadSpectrum();
      }
    }
    const ended = (about.chunks.completed ?? 0) + (about.chunks.failed ?? 0);
    const total = Object.values(about.chunks).reduce((sum, n) => sum + n, 0);
    byId("chunks").textContent =
      `${about.nx} × ${about.ny} pixels, ${about.n_channels} channels · ${ended} of ${total} chunks ended` +
      (about.chunks.failed ? `, ${about.chunks.failed} failed` : "");
  },
  {
    seconds: 4,
    onState: (state) => {
      says(state);
      const status = state.problem?.status;
      if (about || state.ok) return;
      replace(
        byId("problem"),
        empty(
          status === 409 ? "There is no map yet" : "The cube cannot be shown",
          state.problem.detail ?? state.problem.message,
        ),
      );
      byId("problem").hidden = false;
      if (status === 404) live.stop();
    },
  },
);

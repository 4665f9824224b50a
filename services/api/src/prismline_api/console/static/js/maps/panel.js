// The controls of a map: the choice of the map, its colours and limits, and the colour bar. The address holds the choice.
import { el, replace } from "../dom.js";
import { colours, css, SCALES, STRETCHES, shown, stretch } from "./scales.js";

// Maps with fixed colours and limits.
const FIXED = { chunks: { colours: "states", stretch: "linear", low: 0, high: 3, invert: false, known: true } };

export class Look extends EventTarget {
  constructor(parameters) {
    super();
    const pick = (name, known, otherwise) => (known.includes(parameters.get(name)) ? parameters.get(name) : otherwise);
    const number = (name) => (parameters.get(name) ? Number(parameters.get(name)) : null);
    this.chosen = {
      map: parameters.get("map") ?? "integrated",
      colours: pick("colours", SCALES, "viridis"),
      stretch: pick("stretch", STRETCHES, "linear"),
      invert: parameters.get("invert") === "1",
      low: number("low"),
      high: number("high"),
    };
    this.range = null;
  }

  // Change the look. Another map starts without chosen limits.
  set(changes) {
    if (changes.map && changes.map !== this.chosen.map) Object.assign(this.chosen, { low: null, high: null });
    Object.assign(this.chosen, changes);
    this.dispatchEvent(new Event("change"));
  }

  // The style for a canvas. It is `known` if the limits are those of values, or chosen. `range` is the answer of /runs/{id}/maps/{name}.
  style(range = this.range) {
    const { map, low, high, ...rest } = this.chosen;
    if (FIXED[map]) return FIXED[map];
    const known = [low ?? range?.low ?? 0, high ?? range?.high ?? 1];
    if (known[0] === known[1]) known[1] = known[0] + 1;
    const isKnown = (low ?? range?.low ?? null) !== null && (high ?? range?.high ?? null) !== null;
    return { ...rest, low: known[0], high: known[1], known: isKnown };
  }

  // The settings that differ from the defaults, for the address.
  parameters() {
    const { map, colours: scale, stretch: kind, invert, low, high } = this.chosen;
    return {
      map,
      colours: scale === "viridis" ? null : scale,
      stretch: kind === "linear" ? null : kind,
      invert: invert ? "1" : null,
      low,
      high,
    };
  }
}

// The form that changes a look.
export function controls(look, maps) {
  const select = (name, label, options) =>
    el(
      "label",
      {},
      label,
      el(
        "select",
        { name, onchange: (event) => look.set({ [name]: event.target.value }) },
        options.map(([value, text]) => el("option", { value, selected: look.chosen[name] === value }, text)),
      ),
    );
  const limit = (name, label) =>
    el(
      "label",
      {},
      label,
      el("input", {
        name,
        type: "number",
        step: "any",
        size: 8,
        value: look.chosen[name],
        placeholder: "auto",
        onchange: (event) => look.set({ [name]: event.target.value === "" ? null : Number(event.target.value) }),
      }),
    );
  const form = el(
    "form",
    { class: "filters map-controls", "aria-label": "Map", onsubmit: (event) => event.preventDefault() },
    select(
      "map",
      "Map",
      maps.map((entry) => [entry.name, entry.unit ? `${entry.title} (${entry.unit})` : entry.title]),
    ),
    select(
      "stretch",
      "Scale",
      STRETCHES.map((name) => [name, name]),
    ),
    select(
      "colours",
      "Colours",
      SCALES.map((name) => [name, name]),
    ),
    limit("low", "From"),
    limit("high", "To"),
    el(
      "label",
      { class: "check" },
      el("input", {
        name: "invert",
        type: "checkbox",
        checked: look.chosen.invert,
        onchange: (event) => look.set({ invert: event.target.checked }),
      }),
      " Invert",
    ),
  );
  const fresh = () => {
    const fixed = look.chosen.map in FIXED;
    for (const name of ["stretch", "colours", "low", "high", "invert"]) form.elements[name].disabled = fixed;
    for (const name of ["low", "high"]) {
      if (document.activeElement !== form.elements[name]) form.elements[name].value = look.chosen[name] ?? "";
      form.elements[name].placeholder =
        fixed || look.range?.[name] === undefined ? "auto" : `auto: ${shown(look.range[name])}`;
    }
  };
  for (const event of ["change", "range"]) look.addEventListener(event, fresh);
  fresh();
  return form;
}

// The colour bar with its numbers, or the colours with their names.
export function legend(place, style, unit, shades) {
  const table = colours(style.colours, style.invert);
  if (shades && style.colours === "states") {
    replace(
      place,
      el(
        "ul",
        { class: "shades" },
        shades.map((name, value) =>
          el("li", {}, swatch(css(table, value / (shades.length - 1))), name.replaceAll("_", " ")),
        ),
      ),
    );
    return;
  }
  if (!style.known) {
    replace(place, el("p", { class: "hint" }, "No values yet, so the colours have no scale."));
    return;
  }
  const canvas = el("canvas", { class: "bar", width: 256, height: 1, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(256, 1);
  new Uint32Array(image.data.buffer).set(table);
  context.putImageData(image, 0, 0);
  const scale = stretch(style.stretch, style.low, style.high);
  replace(
    place,
    canvas,
    el(
      "div",
      { class: "bar-ends" },
      [0, 0.5, 1].map((at) => el("span", {}, `${shown(scale.value(at))}${at === 1 && unit ? ` ${unit}` : ""}`)),
    ),
  );
}

function swatch(colour) {
  const box = el("canvas", { class: "swatch", width: 1, height: 1, "aria-hidden": "true" });
  const context = box.getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return box;
}

// A value of a map as text. Flags and states are shown by name.
export function worded(name, value, unit, shades) {
  if (value === undefined) return "…";
  if (Number.isNaN(value)) return "no value: the pixel is blank, or its chunk has not completed";
  if (name === "chunks") return (shades?.[value] ?? "?").replaceAll("_", " ");
  if (name === "flags") {
    const set = (shades ?? [])
      .filter((_, bit) => value & (1 << bit))
      .map((flag) => flag.toLowerCase().replaceAll("_", " "));
    return set.length ? set.join(", ") : "none";
  }
  return unit ? `${shown(value)} ${unit}` : shown(value);
}

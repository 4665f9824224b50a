// Functions that build pages. They create elements from text, never from HTML.

/**
 * An element. Attributes that are null, undefined or false are left out. `on*` functions are listeners. Children are
 * elements, texts, numbers, or lists of them.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [attributes]
 * @param {...any} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * The same for an element of SVG.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [attributes]
 * @param {...any} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Record<string, any>} attributes
 * @param {any[]} children
 * @returns {E}
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function" && name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/**
 * Replace the children of an element.
 * @param {Element} element
 * @param {...any} children
 */
export function replace(element, ...children) {
  element.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
}

/**
 * The element of the page with this id, of the given kind. Throws if the page has none.
 * @template {HTMLElement} [E=HTMLElement]
 * @param {string} id
 * @param {new () => E} [kind]
 * @returns {E}
 */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof (kind ?? HTMLElement)))
    throw new Error(`The page has no ${kind?.name ?? "element"} with the id ${id}.`);
  return /** @type {E} */ (found);
}

/**
 * Focus the first element in `place` that the selector finds.
 * @param {Element} place
 * @param {string} selector
 */
export const focusOn = (place, selector) => /** @type {HTMLElement | null} */ (place.querySelector(selector))?.focus();

/**
 * The field of a form with this name.
 * @param {HTMLFormElement} form
 * @param {string} name
 */
export const field = (form, name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));

/**
 * The texts of a form's fields by name, without the empty ones.
 * @param {HTMLFormElement} form
 * @returns {Record<string, string>}
 */
export const given = (form) =>
  Object.fromEntries([...new FormData(form)].flatMap(([name, value]) => (value === "" ? [] : [[name, String(value)]])));

// The glyph of each state. A state is never shown by its colour alone.
const GLYPHS = {
  pending: "○",
  running: "▶",
  completed: "✓",
  failed: "✕",
  cancelled: "■",
  in_progress: "▶",
  deferred: "◷",
  ok: "✓",
  alarm: "!",
  no_data: "?",
};

export const stateGlyph = (state) => GLYPHS[state] ?? "•";

export function badge(status) {
  const name = String(status).toLowerCase();
  return el(
    "span",
    { class: `badge state-${name}` },
    el("span", { class: "glyph", "aria-hidden": "true" }, stateGlyph(name)),
    name.replaceAll("_", " "),
  );
}

// A time in the reader's time zone, with UTC in the title. Without the date if `day` is false.
export function moment(text, { seconds = false, day = true } = {}) {
  if (!text) return el("span", { class: "none" }, "–");
  const date = new Date(text);
  return el(
    "time",
    { datetime: text, title: `${date.toISOString().replace("T", " ").slice(0, 19)} UTC` },
    momentText(date, { seconds, day }),
  );
}

// The same as text.
export function momentText(date, { seconds = false, day = true } = {}) {
  return new Intl.DateTimeFormat(undefined, {
    dateStyle: day ? "medium" : undefined,
    timeStyle: seconds ? "medium" : "short",
  }).format(date);
}

// A duration in seconds as text, such as 1 h 03 min.
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const COUNT = new Intl.NumberFormat();
export const count = (number) => (number === null || number === undefined ? "–" : COUNT.format(number));

// A number with its noun, such as 1 chunk or 2 chunks.
export const plural = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;

// A value of JSON as text.
export const valueText = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

const DOLLARS = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 2 });
// A cost between two values.
export const dollars = ({ least, most }) => `${DOLLARS.format(least)} – ${DOLLARS.format(most)} USD`;

// A number of bytes, in powers of 1,024.
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = number;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

// Show a message at the top of the page. It stays until the next call.
export function notice(text, { error = false } = {}) {
  replace(byId("notices"), text ? el("p", { class: error ? "notice error" : "notice" }, text) : null);
}

// The message that replaces the rows of an empty or broken list.
export function empty(title, ...what) {
  return el("div", { class: "empty" }, el("p", { class: "empty-title" }, title), el("p", {}, ...what));
}

/**
 * Make a button copy `text`, and say that it did.
 * @param {HTMLElement} button
 * @param {string} text
 */
export function copies(button, text) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => {
      button.textContent = label;
    }, 2000);
  });
}

/**
 * A button that copies `text`. `what` names it for those who do not see where it stands.
 * @param {string} what
 * @param {string} text
 */
export function copyButton(what, text) {
  const button = el("button", { type: "button", class: "quiet small", "aria-label": `Copy ${what}` }, "Copy");
  copies(button, text);
  return button;
}

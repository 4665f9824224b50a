// What a file would cost as a run: how much work is in it is read here, and the api computes the cost.
import { get } from "./api.js";
import { dollars, el } from "./dom.js";

// A header card of FITS, and the bytes that are searched for the cards of a cube's axes.
const CARD = 80;
const HEADER_BYTES = 36 * CARD * 10;
const SPECTRAL = /^(VRAD|VELO|VOPT|FELO|FREQ|WAVE|AWAV|ZOPT|BETA|WAVN|ENER)/;

/**
 * Spectra and channels of a FITS file without compression. Null: its first header has no cube.
 * @param {File} file
 * @returns {Promise<{items: number, channels: number} | null>}
 */
async function cubeIn(file) {
  const text = await file.slice(0, HEADER_BYTES).text();
  const cards = new Map();
  for (let at = 0; at + CARD <= text.length; at += CARD) {
    const name = text.slice(at, at + 8).trim();
    if (name === "END") break;
    if (text[at + 8] === "=")
      cards.set(
        name,
        text
          .slice(at + 10, at + CARD)
          .split("/")[0]
          .replaceAll("'", "")
          .trim(),
      );
  }
  const axes = Array.from({ length: Number(cards.get("NAXIS") ?? 0) }, (_, axis) => axis + 1);
  const length = (axis) => Number(cards.get(`NAXIS${axis}`));
  const spectral = axes.find((axis) => SPECTRAL.test(cards.get(`CTYPE${axis}`) ?? ""));
  const values = axes.reduce((product, axis) => product * length(axis), 1);
  return spectral === undefined || !(values > 0)
    ? null
    : { items: values / length(spectral), channels: length(spectral) };
}

// The rows of a list without compression.
async function rowsIn(file, { header }) {
  const decoder = new TextDecoder();
  const reader = file.stream().getReader();
  let [rows, rest] = [0, ""];
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + decoder.decode(part.value, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    rows += lines.filter((line) => line.trim()).length;
  }
  return rows + (rest.trim() ? 1 : 0) - (header ? 1 : 0);
}

/**
 * A sentence about the cost, with where it comes from. Null: nothing is known, or the api does not answer.
 * @param {File} file
 * @param {{workload: string, format: string}} kind
 * @param {AbortSignal} signal
 * @returns {Promise<HTMLElement | null>}
 */
export async function estimateOf(file, kind, signal) {
  if (/\.(gz|fz|zip)$/i.test(file.name)) return null;
  try {
    const work =
      kind.workload === "spectra"
        ? await cubeIn(file)
        : { items: await rowsIn(file, { header: kind.format === "csv" }) };
    if (work === null || work.items < 1) return null;
    const found = await get("/estimate", { workload: kind.workload, ...work }, { signal });
    return el(
      "details",
      { class: "estimate" },
      el("summary", {}, `Estimated cost on AWS: ${dollars(found.usd)}`),
      el("p", {}, `Computed, not measured, with list prices: ${found.usd.prices}. ${found.reasons.join(" ")}`),
    );
  } catch {
    return null; // a job can be submitted without an estimate
  }
}

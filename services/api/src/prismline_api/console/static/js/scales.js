import { colours } from "./maps/scales.js";

/**
 * Red, green and blue, from 0 to 255.
 * @typedef {[number, number, number]} Colour
 */
const VIRIDIS = colours("viridis");

/**
 * The colour of viridis at `share`, from 0 to 1.
 * @param {number} share
 * @returns {Colour}
 */
export function viridis(share) {
  const pixel = VIRIDIS[Math.round(Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1))];
  return [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
}

/** @param {Colour} colour */
export const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

/**
 * A colour of the style sheet.
 * @param {string} name
 * @returns {Colour}
 */
export function named(name, element = document.documentElement) {
  const text = getComputedStyle(element).getPropertyValue(name).trim();
  const value = parseInt(text.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

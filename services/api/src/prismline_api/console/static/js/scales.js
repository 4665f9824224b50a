// Colours as [red, green, blue].
import { colours } from "./maps/scales.js";

const VIRIDIS = colours("viridis");

// The colour of viridis at `share`, from 0 to 1.
export function viridis(share) {
  const pixel = VIRIDIS[Math.round(Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1))];
  return [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
}

export const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

// A colour of the style sheet.
export function named(name, element = document.documentElement) {
  const text = getComputedStyle(element).getPropertyValue(name).trim();
  const value = parseInt(text.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

// The page of a run that does not exist. A run is known a moment after it was submitted, so the page looks again.

import { get } from "./api.js";
import { byId } from "./dom.js";
import { poll, saysState } from "./live.js";

// Seconds between two looks, and minutes after which the page stops.
const LOOK_SECONDS = 2;
const MOST_MINUTES = 10;

const place = byId("looking");
const until = performance.now() + MOST_MINUTES * 60_000;

async function look() {
  try {
    await get(`/runs/${encodeURIComponent(place.dataset.runId)}`);
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    if (performance.now() > until) {
      looking.stop();
      place.textContent = `The run was not found in ${MOST_MINUTES} minutes. Reload the page to look again.`;
    }
    return;
  }
  looking.stop();
  location.reload();
}

place.textContent =
  `A new run is known a moment after it was submitted. This page looks again every ${LOOK_SECONDS} s` +
  " and opens the run when it is known.";
const looking = poll(look, { seconds: LOOK_SECONDS, onState: saysState(byId("live")) });

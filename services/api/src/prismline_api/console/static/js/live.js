// What a page shows stays fresh: a function is called again and again, while somebody can see the page.

// Call `load` now and then every `seconds`. While it fails, wait longer, up to 30 s, and say so by `onState`, which is
// called with {ok: true} or {ok: false, problem}. Returns {again, stop}: `again()` calls it at once.
export function poll(load, { seconds = 2, onState = () => {} } = {}) {
  let timer = null;
  let stopped = false;
  let failures = 0;
  let running = null;

  async function turn() {
    clearTimeout(timer);
    timer = null;
    if (stopped) return;
    running ??= (async () => {
      try {
        await load();
        failures = 0;
        onState({ ok: true });
      } catch (problem) {
        if (problem.name !== "AbortError") {
          failures += 1;
          onState({ ok: false, problem });
        }
      }
    })();
    await running;
    running = null;
    if (!stopped && !document.hidden && timer === null) {
      timer = setTimeout(turn, 1000 * (failures ? Math.min(30, seconds * 2 ** failures) : seconds));
    }
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && timer === null && !stopped) turn();
  });
  turn();
  return {
    again: async () => { if (running) await running; await turn(); },
    stop: () => { stopped = true; clearTimeout(timer); },
  };
}

// Say in `element` whether what the page shows is current.
export function saysState(element) {
  let said = "";
  return ({ ok, problem }) => {
    const text = ok ? "" : `Not current: ${problem.detail ?? problem.message}`;
    if (text !== said) {
      said = text;
      element.textContent = text;
      element.classList.toggle("stale", !ok);
    }
  };
}

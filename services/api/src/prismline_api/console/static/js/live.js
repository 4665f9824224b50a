// Keeps a page current, while it is visible, by polling or by events.

/**
 * Whether the page is current. If not, the problem says why.
 * @typedef {{ok: boolean, problem?: any}} State
 */

/**
 * Call `load` at once and then every `seconds`. After a failure, wait longer, up to 30 s. `onState` is called after each
 * call. Returns {again, stop}. `again()` calls `load` at once.
 * @param {() => Promise<void>} load
 * @param {{seconds?: number, onState?: (state: State) => void}} [options]
 */
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
    again: async () => {
      if (running) await running;
      await turn();
    },
    stop: () => {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

/**
 * Returns an `onState` that writes into `element` that the page is not current, and why.
 * @param {HTMLElement} element
 * @returns {(state: State) => void}
 */
export function saysState(element) {
  let shown = "";
  return ({ ok, problem }) => {
    const text = ok ? "" : `Not current: ${problem.detail ?? problem.message}`;
    if (text !== shown) {
      shown = text;
      element.textContent = text;
      element.classList.toggle("stale", !ok);
    }
  };
}

// The server sends an event at least every five seconds. After this time without one it hangs, or the network is gone.
const SILENT_SECONDS = 15;

/**
 * Follow a run by events, or by polling if the server sends no events. `version()` is the version of the cells that the
 * page shows. `load` fetches everything once, for polling. A hidden page disconnects, because a browser opens only a few
 * connections to one host.
 * @param {string} runId
 * @param {object} handlers
 * @param {(run: any) => void} handlers.run
 * @param {(changes: any, version: string) => void} handlers.cells
 * @param {() => void} handlers.reset
 * @param {(state: State) => void} handlers.state
 * @param {() => string | null | undefined} handlers.version
 * @param {() => Promise<void>} load
 */
export function follow(runId, handlers, load) {
  let polling = null;
  let source = null;
  let lastMessageAt = 0;
  let watch = null;

  function toPolling() {
    disconnect();
    polling ??= poll(load, { seconds: 2, onState: handlers.state });
  }

  // A server that hangs keeps its connections, so the browser reports no error. Connect again until it answers.
  function listen() {
    if (!source || performance.now() - lastMessageAt < SILENT_SECONDS * 1000) return;
    handlers.state({
      ok: false,
      problem: { detail: `The server has not answered for ${SILENT_SECONDS} s. The page reconnects automatically.` },
    });
    disconnect();
    connect();
  }

  function connect() {
    lastMessageAt = performance.now();
    watch ??= setInterval(listen, 1000);
    const query = new URLSearchParams({ run: runId, since: handlers.version() ?? "" });
    source = new EventSource(`/v1/events?${query}`);
    const noteMessage = () => {
      lastMessageAt = performance.now();
    };
    const ok = () => {
      noteMessage();
      handlers.state({ ok: true });
    };
    const on = (kind, handle) =>
      source.addEventListener(kind, (event) => {
        noteMessage();
        handle(JSON.parse(event.data), event.lastEventId);
      });
    on("run", (run) => {
      ok();
      handlers.run(run);
    });
    on("cells", (changes, version) => handlers.cells(changes, version));
    on("reset", () => handlers.reset());
    on("alive", () => {});
    on("trouble", (trouble) => handlers.state({ ok: false, problem: trouble }));
    source.addEventListener("error", () => {
      if (source?.readyState === EventSource.CLOSED)
        toPolling(); // the server refused: it has no events, or the session has ended
      else if (source)
        handlers.state({
          ok: false,
          problem: { detail: "The connection is lost. The page reconnects automatically." },
        });
    });
    source.addEventListener("open", ok);
  }

  function disconnect() {
    clearInterval(watch);
    watch = null;
    source?.close();
    source = null;
  }

  if (!("EventSource" in window)) toPolling();
  else if (!document.hidden) connect();
  document.addEventListener("visibilitychange", () => {
    if (polling) return;
    if (document.hidden) disconnect();
    else if (!source) connect();
  });
  addEventListener("pagehide", disconnect);
}

// Calls the public API with the session of this page: JSON in and out, errors as problem details.

// Seconds after which a server that has not begun to answer is taken for one that hangs.
const ANSWER_SECONDS = 20;
const csrf = document.querySelector('meta[name="prismline-csrf"]')?.getAttribute("content") ?? "";

/**
 * @typedef {object} Asked What a request may have beside its method and path.
 * @property {any} [body]
 * @property {Record<string, any> | null} [query] Parameters; empty ones are left out.
 * @property {AbortSignal} [signal]
 * @property {Record<string, string>} [headers]
 * @property {string} [idempotencyKey]
 */

// An error answer. `detail` is a sentence for the user.
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {{type?: string, title?: string, detail?: string}} document
   */
  constructor(status, document) {
    super(document.detail ?? document.title ?? `The server answered with ${status}.`);
    this.status = status;
    this.type = document.type ?? "about:blank";
    this.detail = this.message;
  }
}

/**
 * The answer of a request below /v1, e.g. request("GET", "/runs"). Throws Problem. Its status is 0 without an answer.
 * @param {string} method
 * @param {string} path
 * @param {Asked} [asked]
 */
export async function request(method, path, { body, query, signal, headers = {}, idempotencyKey } = {}) {
  const address = new URL(`/v1${path}`, location.origin);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") address.searchParams.set(name, value);
  }
  const sent = { ...headers };
  if (method !== "GET") sent["X-Prismline-CSRF"] = csrf;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (idempotencyKey) sent["Idempotency-Key"] = idempotencyKey;
  let answer;
  const patience = new AbortController();
  const impatient = setTimeout(() => patience.abort(), ANSWER_SECONDS * 1000);
  try {
    answer = await fetch(address, {
      method,
      signal: signal ? AbortSignal.any([signal, patience.signal]) : patience.signal,
      headers: sent,
      credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    const impatience = patience.signal.aborted && !signal?.aborted;
    if (error.name === "AbortError" && !impatience) throw error;
    const what = impatience ? `has not answered for ${ANSWER_SECONDS} s` : "does not answer";
    const then =
      method === "GET"
        ? "The page tries again automatically."
        : "Look whether it did what you asked before you repeat it.";
    throw new Problem(0, { detail: `The server ${what}. ${then}` });
  } finally {
    clearTimeout(impatient);
  }
  if (answer.ok || answer.status === 304) return answer;
  const problem = new Problem(answer.status, await answer.json().catch(() => ({})));
  if (answer.status === 401) {
    // The session has ended. Loading the page again opens a new one, or asks for a key.
    const again = `/console/login?next=${encodeURIComponent(location.pathname + location.search)}`;
    problem.message = problem.detail = "Your session has ended. Reload the page to continue.";
    if (!sessionStorage.getItem("prismline-signing-in")) {
      sessionStorage.setItem("prismline-signing-in", "1");
      location.assign(again);
    }
  }
  throw problem;
}

/**
 * The document of a GET request.
 * @param {string} path
 * @param {Record<string, any> | null} [query]
 * @param {Asked} [options]
 * @returns {Promise<any>}
 */
export async function get(path, query, options = {}) {
  const document = await (await request("GET", path, { ...options, query })).json();
  sessionStorage.removeItem("prismline-signing-in");
  return document;
}

/**
 * The document that answers a POST request.
 * @param {string} path
 * @param {any} [body]
 * @param {Asked} [options]
 * @returns {Promise<any>}
 */
export const post = async (path, body, options = {}) => (await request("POST", path, { ...options, body })).json();

// A new idempotency key for a request that changes something: a repeat of the request has no further effect.
export const newKey = () =>
  crypto.randomUUID?.() ??
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

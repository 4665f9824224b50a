// Submit a cube or a list of URLs: drop a file on the page, or choose one. It is uploaded to the bucket by a presigned
// link, not through the api, and then named in a job.
import { newKey, post } from "./api.js";
import { byId, bytes, el, notice, replace } from "./dom.js";
import { estimateOf } from "./estimate.js";

// Browsers read a pattern with the flag v, which needs the escape.
const NAME = "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}";
/**
 * The content of a file, by the suffix of its name.
 * @type {[RegExp, {format: string, workload: string, what: string, gzip?: boolean}][]}
 */
const KINDS = [
  [/\.(fits|fit|fts)$/i, { format: "fits", workload: "spectra", what: "a spectral cube" }],
  [/\.(fits|fit|fts)\.gz$/i, { format: "fits", workload: "spectra", what: "a spectral cube, compressed", gzip: true }],
  [/\.(fits|fit|fts)\.fz$/i, { format: "fits", workload: "spectra", what: "a spectral cube, compressed by fpack" }],
  [/\.zarr\.zip$/i, { format: "fits", workload: "spectra", what: "a spectral cube, Zarr in a ZIP file" }],
  [/\.(jsonl|ndjson)(\.gz)?$/i, { format: "jsonl", workload: "urls", what: "a list of URLs, as JSON Lines" }],
  [/\.csv(\.gz)?$/i, { format: "csv", workload: "urls", what: "a list of URLs, in the column url of a CSV table" }],
  [/\.(txt|list|urls)(\.gz)?$/i, { format: "text", workload: "urls", what: "a list of URLs, one per line" }],
];

const kindOf = (name) => KINDS.find(([pattern]) => pattern.test(name))?.[1] ?? null;
const isGzip = (name) => /\.gz$/i.test(name);
const path = (runId) => `/console/runs/${encodeURIComponent(runId)}`;

// The suggested name of a job, derived from the name of the file.
function suggested(name) {
  const stem = name
    .replace(/\.(gz|fz|zip)$/i, "")
    .replace(/\.[^.]*$/, "")
    .replace(/[^A-Za-z0-9._-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "");
  return stem.slice(0, 64) || "job";
}

/**
 * Upload a file with the signed headers. The browser adds Content-Length itself.
 * @param {File} file
 * @param {{method: string, url: string, headers: Record<string, string>}} target
 * @param {(share: number) => void} onProgress
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function upload(file, target, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(target.method, target.url);
    for (const [name, value] of Object.entries(target.headers)) {
      if (name.toLowerCase() !== "content-length") request.setRequestHeader(name, value);
    }
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) onProgress(event.loaded / event.total);
    });
    request.addEventListener("load", () =>
      request.status < 300
        ? resolve()
        : reject(new Error(`The bucket refused the file (${request.status}). Submit it again.`)),
    );
    request.addEventListener("error", () =>
      reject(
        new Error(
          "The file could not be sent to the bucket. Submit it again. If that does not help, allow uploads from this page in the bucket's CORS rules.",
        ),
      ),
    );
    request.addEventListener("abort", () => reject(new DOMException("The upload was stopped.", "AbortError")));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

async function send(file, kind, name, show, signal) {
  const job = { workload: kind.workload, name };
  show("Requesting an upload link…", null);
  const target = await post(
    "/uploads",
    { format: kind.format, size_bytes: file.size, gzip: isGzip(file.name) },
    { signal },
  );
  await upload(
    file,
    target,
    (share) => show(`Uploading ${file.name}: ${Math.round(100 * share)} % of ${bytes(file.size)}`, share),
    signal,
  );
  show("Submitting the job…", 1);
  return post("/jobs", { ...job, upload: target.upload_id }, { idempotencyKey: newKey(), signal });
}

function open(file) {
  const kind = kindOf(file.name);
  if (kind === null) {
    notice(
      `${file.name}: the name of a cube ends in .fits, .fits.gz, .fits.fz or .zarr.zip, that of a list of URLs in .txt, .csv or .jsonl. Rename the file and submit it again.`,
      { error: true },
    );
    return;
  }
  if (file.size === 0) {
    notice(`${file.name} is empty, or a folder. Submit a file.`, { error: true });
    return;
  }
  notice("");
  const dialog = byId("dialog", HTMLDialogElement);
  const stop = new AbortController();
  const name = el("input", {
    name: "name",
    required: true,
    maxlength: 64,
    value: suggested(file.name),
    autocomplete: "off",
    pattern: NAME,
    title: "Letters, digits, dots, hyphens and underscores; at most 64",
  });
  const cost = el("div", {});
  estimateOf(file, kind, stop.signal).then((found) => found && replace(cost, found));
  const says = el("p", { role: "status" });
  const progress = el("progress", { class: "wide", max: 1, value: 0, hidden: true, "aria-label": "Upload" });
  const submit = el("button", { type: "submit" }, "Submit");
  const close = el(
    "button",
    {
      type: "button",
      class: "secondary",
      onclick: () => {
        stop.abort();
        dialog.close();
      },
    },
    "Cancel",
  );
  const show = (text, share) => {
    says.textContent = text;
    progress.hidden = false;
    if (share === null) progress.removeAttribute("value");
    else progress.value = share;
  };
  const form = el(
    "form",
    { method: "dialog" },
    el("h2", { id: "dialog-heading" }, "Submit"),
    el("p", {}, `${file.name} (${bytes(file.size)}): ${kind.what}.`),
    el("p", {}, el("label", {}, kind.workload === "spectra" ? "Survey" : "Name", name)),
    cost,
    says,
    progress,
    el("div", { class: "actions" }, close, submit),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = name.disabled = true;
    try {
      const job = await send(file, kind, name.value, show, stop.signal);
      location.assign(path(job.run.run_id));
    } catch (problem) {
      if (problem.name === "AbortError") return;
      says.textContent = problem.detail ?? problem.message;
      progress.hidden = true;
      submit.disabled = name.disabled = false;
    }
  });
  dialog.addEventListener("close", () => stop.abort(), { once: true });
  replace(dialog, form);
  dialog.showModal();
  name.select();
}

// Accept files that are dropped anywhere on the page, or chosen with `input`. `zone` is marked during a drag.
export function takesFiles(zone, input) {
  input.addEventListener("change", () => {
    if (input.files.length) open(input.files[0]);
    input.value = "";
  });
  let inside = 0;
  const mark = (step) => {
    inside = Math.max(0, inside + step);
    zone.classList.toggle("dropping", inside > 0);
  };
  document.addEventListener("dragenter", (event) => {
    event.preventDefault();
    mark(1);
  });
  document.addEventListener("dragleave", () => mark(-1));
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    event.dataTransfer.dropEffect = "copy";
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    inside = 0;
    mark(0);
    const { files } = event.dataTransfer;
    if (files.length > 1) notice("Submit one file at a time.", { error: true });
    else if (files.length === 1) open(files[0]);
    else {
      const text = event.dataTransfer.getData("text/uri-list") || event.dataTransfer.getData("text/plain");
      if (text) open(new File([text], "dropped.txt", { type: "text/plain" }));
    }
  });
}

// The contracts: which services send and read which message, and the changes. The filters are in the address.
import { get } from "./api.js";
import { byId, count, el, empty, field, given, notice, replace } from "./dom.js";
import { table } from "./tables.js";

const form = byId("filters", HTMLFormElement);
let contracts = [];

// Text in which parts between backquotes become code elements.
const marked = (text) => text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));

const release = (name) => (name === "next" ? "not released yet" : name);

function changes(history) {
  const [latest, ...earlier] = history;
  const line = (change) =>
    el("div", {}, el("span", { class: "sub" }, `${release(change.release)}: `), marked(change.what));
  return [
    line(latest),
    earlier.length ? el("details", {}, el("summary", {}, `${count(earlier.length)} earlier`), earlier.map(line)) : null,
  ];
}

const names = (services) => (services.length ? services.join(", ") : "–");

function where(contract) {
  if (!contract.channel) return contract.kind;
  return contract.channel === "bus" ? "event" : `command, queue ${contract.channel}`;
}

function show() {
  const { service, kind } = given(form);
  const shown = contracts.filter(
    (contract) =>
      (!kind || contract.kind === kind) &&
      (!service || [contract.owner, ...contract.producers, ...contract.consumers].includes(service)),
  );
  const query = new URLSearchParams(Object.entries({ service, kind }).filter(([, value]) => value)).toString();
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
  replace(
    byId("contracts"),
    shown.length === 0
      ? empty("No contract matches these filters.", el("a", { href: "/console/contracts" }, "Show all contracts"))
      : table(
          "Contracts",
          [["Contract"], ["Kind"], ["Sent or written by"], ["Read by"], ["Changes", "wide"]],
          shown.map((contract) => [
            [el("code", {}, contract.name), el("div", { class: "hint" }, contract.says)],
            where(contract),
            names(contract.producers),
            names(contract.consumers),
            changes(contract.history),
          ]),
        ),
  );
  byId("contracts").setAttribute("aria-busy", "false");
}

async function begin() {
  let found;
  try {
    found = await get("/contracts");
  } catch (problem) {
    notice(problem.detail ?? problem.message, { error: true });
    byId("contracts").setAttribute("aria-busy", "false");
    return;
  }
  contracts = found.contracts;
  byId("version").textContent = `Version ${found.version}, with which the api was built`;
  const services = new Set(contracts.flatMap((contract) => [...contract.producers, ...contract.consumers]));
  field(form, "service").append(...[...services].sort().map((name) => el("option", {}, name)));
  for (const [name, value] of new URLSearchParams(location.search))
    if (field(form, name)) field(form, name).value = value;
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
}

begin();

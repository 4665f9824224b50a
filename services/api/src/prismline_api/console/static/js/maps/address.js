// Keeps the view in the address, so that it can be shared and survives a reload.

// The parameters of the address for a view.
export function addressOf(view) {
  const [x, y] = view.pixel ?? [null, null];
  const whole = view.least && Math.abs(view.scale / view.least - 1) < 1e-6;
  return {
    x,
    y,
    view: whole || !view.scale ? null : [view.x.toFixed(1), view.y.toFixed(1), view.scale.toPrecision(4)].join(","),
  };
}

// Restore the view from the address, if it has one.
export function keepView(view, parameters) {
  const [x, y, scale] = (parameters.get("view") ?? "").split(",").map(Number);
  if ([x, y, scale].every(Number.isFinite) && scale > 0) Object.assign(view, { x, y, scale });
}

/**
 * The chosen pixel, if the address names one.
 * @param {URLSearchParams} parameters
 * @returns {[number, number] | null}
 */
export function chosenPixel(parameters) {
  const [x, y] = ["x", "y"].map((name) => (parameters.get(name) === null ? NaN : Number(parameters.get(name))));
  return Number.isInteger(x) && Number.isInteger(y) ? [x, y] : null;
}

// A function that writes the parameters of `current()` into the address, 250 ms after its last call. Other parameters
// stay unchanged.
export function rememberIn(current) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const parameters = new URLSearchParams(location.search);
      for (const [name, value] of Object.entries(current())) {
        if (value === null || value === undefined) parameters.delete(name);
        else parameters.set(name, value);
      }
      history.replaceState(null, "", `${location.pathname}?${parameters}`);
    }, 250);
  };
}

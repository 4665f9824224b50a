// What scripts of the page define for the modules: the vendored library of charts.
declare const uPlot: any;

interface Window {
  uPlot: any;
}

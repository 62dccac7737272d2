/* plotly.js as this package ships it, the same that draws in the HTML file. Dash loads its own, three times as large,
   where window.Plotly is missing when the first chart is to be drawn; it waits where that is a promise. Every page but
   the Timeline has charts: there the library comes when another page draws one. */
const address = document.currentScript.dataset.plotly;
let library = null;

function load() {
  library ||= new Promise((resolve, reject) => {
    const script = ddprof.element("script", [], { src: address });
    script.onload = () => resolve(window.Plotly); // by then the library itself
    script.onerror = reject;
    document.head.append(script);
  });
  return library;
}

const own = (value) => Object.defineProperty(window, "Plotly", { value, writable: true, configurable: true });
Object.defineProperty(window, "Plotly", { get: load, set: own, configurable: true });
if (!window.location.pathname.endsWith("/timeline")) load();

/* plotly.js as this package ships it, the same that draws in the HTML file. Dash loads its own, three times as large,
   where window.Plotly is missing when the first chart is to be drawn; it waits where that is a promise. */
const address = document.currentScript.dataset.plotly;
window.Plotly = new Promise((resolve, reject) => {
  const script = ddprof.element("script", [], { src: address });
  script.onload = () => resolve(window.Plotly); // by then the library itself
  script.onerror = reject;
  document.head.append(script);
});

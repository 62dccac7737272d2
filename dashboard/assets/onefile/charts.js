/* The charts of the file: drawn by plotly.js when they come into view, in the colours that the page has at the moment,
   and again when its theme or its width has changed. To run the library costs as much as all else that a file does when
   it is opened: it waits until a chart is seen, or is near and the reader has begun to move. */
const NEAR = "300px"; // a chart is drawn so far before it is seen, once the reader moves
const MOVES = ["pointermove", "wheel", "touchstart", "keydown", "scroll"];
const PAPER_PX = 680; // width of A4 without its margins (shared/page.css)
const CONFIG = { displayModeBar: false };
const plots = Array.from(document.querySelectorAll(".plot"));
if (!plots.length) return;

const figures = new Map(
  plots.map((plot) => [plot, JSON.parse(plot.closest(".chart").querySelector("script").textContent)])
);

let library = "";
const unpacked = ddprof.unpacked("plotly").then((bytes) => {
  library = new TextDecoder().decode(bytes);
});

function run() {
  if (library && !window.Plotly) document.head.append(ddprof.element("script", library));
}

/* A figure with colours for their names: "var(--accent)". */
function themed(value, style) {
  if (typeof value === "string") {
    const name = /^var\((--[a-z-]+)\)$/.exec(value);
    return name ? style.getPropertyValue(name[1]).trim() : value;
  }
  if (Array.isArray(value)) {
    return value.every((x) => x === null || typeof x === "number") ? value : value.map((x) => themed(x, style));
  }
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, themed(part, style)]));
}

function draw(plot, width) {
  const style = getComputedStyle(document.documentElement);
  const state = `${width} ${style.getPropertyValue("--ground")}`;
  if (!width || plot.dataset.drawn === state) return;
  const { data, layout } = themed(figures.get(plot), style);
  window.Plotly.react(plot, data, { ...layout, width }, CONFIG);
  plot.dataset.drawn = state;
}

async function seen(entries) {
  const near = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
  if (!near.length) return;
  await unpacked;
  run();
  near.forEach((plot) => draw(plot, plot.clientWidth));
}

let watch = new IntersectionObserver(seen);

/* Whoever is near is told again. */
function again() {
  watch.disconnect();
  plots.forEach((plot) => watch.observe(plot));
}

function moved() {
  MOVES.forEach((kind) => window.removeEventListener(kind, moved));
  watch.disconnect();
  watch = new IntersectionObserver(seen, { rootMargin: NEAR });
  again();
}

again();
MOVES.forEach((kind) => window.addEventListener(kind, moved, { passive: true }));
window.addEventListener("resize", again);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
const theme = { attributes: true, attributeFilter: ["data-theme"] };
new MutationObserver(again).observe(document.documentElement, theme);

/* All of them, at once: the browser lays the paper out as soon as the event is over. The theme is light by then
   (shared/paper.js). Before plotly.js is unpacked the tables stand for them. */
window.addEventListener("beforeprint", () => {
  run();
  if (!window.Plotly) {
    plots.forEach((plot) => {
      plot.closest(".chart").hidden = true;
      plot.closest(".exhibit").querySelector(".numbers").open = true;
    });
    return;
  }
  plots.forEach((plot) => draw(plot, Math.min(PAPER_PX, parseInt(plot.style.maxWidth, 10) || PAPER_PX)));
});
window.addEventListener("afterprint", () => {
  plots.forEach((plot) => {
    plot.closest(".chart").hidden = false;
  });
  again();
});

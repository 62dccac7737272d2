/* A click on a part of the flame graph filters the table that lists it. */
const [TABLE, ROW] = [6, 7]; // in a part's customdata (dashboard/figures/plotly/flame.py)
const wired = new WeakMap(); // plot -> its method `on`, a new one when it was drawn from scratch

function filter(event) {
  const told = event.points[0].customdata;
  const table = document.getElementById(`exhibit-${told[TABLE]}`);
  const field = table && table.querySelector('input[type="search"]');
  if (!field) return;
  field.value = told[ROW];
  field.dispatchEvent(new Event("input", { bubbles: true }));
  table.scrollIntoView({ block: "start" });
}

document.addEventListener("pointerover", (event) => {
  const plot = event.target.closest ? event.target.closest("#exhibit-flame .js-plotly-plot") : null;
  if (!plot || !plot.on || wired.get(plot) === plot.on) return;
  wired.set(plot, plot.on);
  plot.on("plotly_click", filter);
});

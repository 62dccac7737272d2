/* Large tables: the numbers come as JSON in an attribute and become rows when they are first looked at.
   Dash needs seconds for a thousand cells as components; the browser needs milliseconds. */
const { element, tableTool } = ddprof;
const cell = (kind, text, className, attributes) =>
  element(kind, text, { ...attributes, ...(className ? { class: className } : {}) });

function build(place) {
  const source = place.dataset.sheet;
  if (place.source === source) return;
  place.source = source;
  const [columns, rows, isTool, commands] = JSON.parse(source);
  const isNumber = (column) => column && !rows.some((row) => row[column][1].startsWith("text"));
  const heads = columns.map((name, i) => cell("th", name, isNumber(i) ? "" : "text", { scope: "col" }));
  const lines = rows.map((row, i) =>
    element(
      "tr",
      row.map(([text, className, title]) => cell("td", text, className, title ? { title } : {})),
      commands[i] ? { "data-command": commands[i] } : {},
    ),
  );
  const table = element("table", [element("thead", element("tr", heads)), element("tbody", lines)]);
  place.replaceChildren(table);
  if (isTool) tableTool(place, table);
}

const buildOpen = () => document.querySelectorAll("details[open] .sheet[data-sheet]").forEach(build);
document.addEventListener("toggle", buildOpen, true);
new MutationObserver(buildOpen).observe(document.documentElement, {
  subtree: true,
  childList: true,
  attributes: true,
  attributeFilter: ["data-sheet"],
});

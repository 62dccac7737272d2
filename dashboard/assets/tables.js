/* Large tables: the numbers come as JSON in an attribute and become rows when they are first looked at. Dash needs seconds for a
   thousand cells as components; the browser needs milliseconds. All text is text content, never HTML. */
(function () {
  "use strict";
  function cell(kind, text, className) {
    const node = document.createElement(kind);
    node.textContent = text;
    if (className) node.className = className;
    if (kind === "th") node.scope = "col";
    return node;
  }

  function build(place) {
    const source = place.dataset.sheet;
    if (place.source === source) return;
    place.source = source;
    const [columns, rows] = JSON.parse(source);
    const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    columns.forEach((name, i) => head.append(cell("th", name, i && !rows.some((row) => row[i][1].startsWith("text")) ? "" : "text")));
    rows.forEach((row) => {
      const line = body.insertRow();
      row.forEach(([text, className]) => line.append(cell("td", text, className)));
    });
    place.replaceChildren(table);
  }

  const buildOpen = () => document.querySelectorAll("details[open] .sheet[data-sheet]").forEach(build);
  document.addEventListener("toggle", buildOpen, true);
  new MutationObserver(buildOpen).observe(document.documentElement, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-sheet"] });
})();

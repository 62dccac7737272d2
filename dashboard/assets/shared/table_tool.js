/* A table that is a tool: sorted by its heads, filtered by words, and a command for a row that has one. */
const { button, element } = ddprof;

const words = (cell) => cell.title || cell.textContent;
const number = (text) => (text === "–" ? -Infinity : Number(text.replaceAll(",", "")));

function compare(column, down) {
  const sign = down ? -1 : 1;
  return (a, b) => {
    const [left, right] = [words(a.cells[column]), words(b.cells[column])];
    const [x, y] = [number(left), number(right)];
    const order = Number.isNaN(x) || Number.isNaN(y) ? left.localeCompare(right) : x === y ? 0 : x - y;
    return sign * order;
  };
}

function sortable(table) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    head.dataset.words = head.textContent; // for paper, which has no buttons
    const sort = button(head.textContent, { class: "sort" }, () => {
      const text = head.classList.contains("text");
      const down = head.ariaSort ? head.ariaSort !== "descending" : !text; // numbers: the largest first
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = Array.from(table.tBodies[0].rows).sort(compare(column, down));
      table.tBodies[0].append(...rows);
    });
    head.replaceChildren(sort);
  });
}

function filter(table) {
  const rows = Array.from(table.tBodies[0].rows);
  const all = rows.length === 1 ? "1 row" : `${rows.length} rows`;
  const said = element("output", all);
  const field = element("input", [], { type: "search", placeholder: "words in a row" });
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row) => {
      const text = Array.from(row.cells, words).join(" ").toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    });
    said.textContent = shown === rows.length ? all : `${shown} of ${all}`;
  });
  return element("div", [element("label", ["Filter ", field]), said], { class: "tool-bar no-print" });
}

function commands(table) {
  const rows = Array.from(table.tBodies[0].rows);
  if (!rows.some((row) => row.dataset.command)) return null;
  const shown = element("div", [], { class: "tool-command listing no-print", "aria-live": "polite" });
  table.tHead.rows[0].append(element("th", "Nsight Compute", { scope: "col", class: "text no-print" }));
  rows.forEach((row) => {
    const cell = row.appendChild(element("td", row.dataset.command ? [] : "–", { class: "text no-print" }));
    if (!row.dataset.command) return;
    const label = `Command for ${words(row.cells[0])}`;
    const show = () => {
      const copy = element("button", "Copy", { type: "button", class: "copy" });
      shown.replaceChildren(element("pre", row.dataset.command), copy);
      table.querySelector("tr.chosen")?.classList.remove("chosen");
      row.classList.add("chosen");
    };
    cell.append(button("Command", { "aria-label": label }, show));
  });
  return shown;
}

/* `place` scrolls the table. */
ddprof.tableTool = (place, table) => {
  place.parentNode.querySelectorAll(":scope > .tool-bar, :scope > .tool-command").forEach((old) => old.remove());
  sortable(table);
  place.before(filter(table));
  const shown = commands(table);
  if (shown) place.after(shown);
};

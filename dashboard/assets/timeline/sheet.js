/* Tables that the timeline makes: sorted by their heads, filtered by words, copied as CSV. */
const { button, element, tableTool } = ddprof;
const FORMULA = /^[ ?'"]*[=+\-@＝＋－＠]/; // a spreadsheet would run it (ddprof/report/export/columns.py)

const TO_NS = { minimumFractionDigits: 3, maximumFractionDigits: 3 };

/* Microseconds as a cell. */
ddprof.inUs = (us) => (us === null ? "–" : us.toLocaleString("en", TO_NS));

function csv(heads, rows, texts) {
  const quoted = (words) => (/[",\r\n]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words);
  const text = (words) => quoted(FORMULA.test(words) ? "'" + words : words);
  const number = (words) => (words === "–" ? "" : words.replaceAll(",", ""));
  const line = (cells) => cells.map((words, i) => (i < texts ? text(words) : number(words))).join(",");
  return [heads.map(quoted).join(","), ...rows.map(line)].join("\r\n") + "\r\n";
}

/* `rows`: cells as words, the first `texts` of them text and the others numbers, "–" for none. */
ddprof.sheet = (title, heads, rows, texts) => {
  const kind = (i) => (i < texts ? { class: "text" } : {});
  const head = heads.map((words, i) => element("th", words, { scope: "col", ...kind(i) }));
  const cell = (words, i) => element("td", words, i ? kind(i) : { ...kind(i), title: words }); // names are cut
  const lines = rows.map((cells) => element("tr", cells.map(cell)));
  const body = element("tbody", lines);
  const table = element("table", [element("caption", title), element("thead", element("tr", head)), body]);
  const attributes = { class: "scroll", tabindex: "0", role: "region", "aria-label": title };
  const place = element("div", [table], attributes);
  const spare = element("pre", "", { hidden: "" });
  const whole = element("div", [place, spare], { class: "tl-sheet" });
  tableTool(place, table);
  const bar = whole.querySelector(".tool-bar");
  const copy = ({ target }) => ddprof.copy(target, csv(heads, rows, texts), spare);
  bar.append(button("Copy CSV", { class: "no-print" }, copy));
  return whole;
};

/* A selection: a range of time over some lanes. What is in it becomes a table, whatever it is. */
const { AXIS, element, time, Timeline } = ddprof;
const TIMES = ["total (µs)", "mean (µs)", "min (µs)", "max (µs)"];
const NAMES = ["name", "what", "lanes", "calls", ...TIMES, "share (%)", "cut"];
const CAUSES = ["cause", "total (µs)", "share (%)"];
const MEANING =
  "Times are those inside the selection; “cut” counts calls that it cuts at its ends. Shares are of the selected " +
  "time of all lanes of the kind, and for causes of all ranks.";

const us = (ns) => ddprof.inUs(ns === null ? null : ns / 1e3);
const percent = (share) => (share * 100).toFixed(2);
const causeCells = (row) => [row.cause, us(row.total_ns), percent(row.share)];

function nameCells(row) {
  const calls = row.calls ? row.calls.toLocaleString("en") : "–";
  const times = [row.total_ns, row.mean_ns, row.min_ns, row.max_ns].map(us);
  return [row.name, row.what, row.kind, calls, ...times, percent(row.share), row.calls ? String(row.cut) : "–"];
}

Object.assign(Timeline.prototype, {
  /* All lanes that a row stands for: a rank's own line for all of its lanes, a heading for those of its ranks. */
  lanesOf(row) {
    const ranks = row.group ? row.group.ranks : row.isRank ? [row.rank] : [];
    if (row.lane !== undefined && !ranks.length) return [row.lane];
    return ranks.flatMap((rank) => this.lanesOn(rank).map((lane) => lane.id));
  },

  /* The rows between two places of the canvas; above the lanes, on the axis, all of them. */
  rowsBetween(y1, y2) {
    const [top, bottom] = [Math.min(y1, y2), Math.max(y1, y2)];
    if (top < AXIS) return this.rows;
    const shift = this.shift();
    return this.rows.filter((r) => r.top + shift <= bottom && r.top + r.height + shift > top);
  },

  /* Selects [lo, hi] ns of some rows; of all rows where there are none. */
  choose(lo, hi, rows) {
    this.range = [lo, hi];
    const isAll = !rows.length || rows.length === this.rows.length;
    this.area = new Set(isAll ? this.info.lanes.map((l) => l.id) : rows.flatMap((row) => this.lanesOf(row)));
    this.paint();
  },

  /* What is in view: of the active lane, or of all. */
  chooseView() {
    const row = this.activeRow();
    this.choose(this.lo, this.hi, row ? [row] : []);
    return this.statistics();
  },

  isChosen(row) {
    return this.area && this.lanesOf(row).some((lane) => this.area.has(lane));
  },

  statistics() {
    return this.attempt(async () => {
      if (!this.area) this.choose(...this.range, []);
      const lanes = [...this.area].sort((a, b) => a - b);
      const found = await ddprof.timelineData.statistics(this.source(), lanes, ...this.range, this.foldedStep());
      const on = `${lanes.length} ${lanes.length === 1 ? "lane" : "lanes"} of ${found.ranks}`;
      const title = `Selected ${time(found.span_us)} on ${on}`;
      this.tell([title, found.idle].filter(Boolean).join(". "));
      this.panel.replaceChildren(
        element("h3", title, { "aria-level": "2" }),
        ...(found.idle ? [element("p", found.idle)] : []),
        ...(found.note ? [element("p", found.note, { class: "quiet" })] : []),
        ddprof.sheet("What ran, by name", NAMES, found.names.map(nameCells), 3),
        ddprof.sheet("Where the time of these ranks goes", CAUSES, found.causes.map(causeCells), 1),
        element("p", MEANING, { class: "quiet" }),
      );
    });
  },
});

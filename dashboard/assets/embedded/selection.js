/* A selection in numbers from what a file holds, as dashboard/timeline/selection.py. Times of a file have six or seven
   digits, and of merged lanes it knows how busy each bin is, not what ran. */
const MOST_NAMES = 500;
const LARGEST_CAUSES = 3; // named in the line that explains an idle selection
const OTHER_KINDS = { ops: "operators", workers: "loader workers" };

/* ns of a kind of lane in the windows of their ranks. */
const selected = (lanes, kind, windows) =>
  lanes
    .filter((lane) => lane.kind === kind)
    .map((lane) => windows.get(lane.rank))
    .reduce((total, [lo, hi]) => total + hi - lo, 0);
const PLACES = ["device", "communication", "operators", "loader workers", "host", "phases", "steps"]; // kernels first
const before = (a, b) => PLACES.indexOf(a.kind) - PLACES.indexOf(b.kind) || b.total_ns - a.total_ns;
const sum = (rows) => rows.reduce((total, row) => total + row.total_ns, 0);

Object.assign(ddprof.Held.prototype, {
  /* Calls `add` with place and ns inside [lo, hi] ns of each slice of a lane, or of each bin of a merged one. */
  inside(data, lo, hi, add) {
    const width = (this.tile.hi - this.tile.lo) / this.tile.bins;
    const count = data.bins ? data.share.length : data.start.length;
    for (let i = 0; i < count; i++) {
      const start = this.tile.lo + (data.bins ? i * width : data.start[i] * 1e3);
      const end = start + (data.bins ? width : data.dur[i] * 1e3);
      const part = Math.min(hi, end) - Math.max(lo, start);
      if (part > 0) add(i, data.bins ? (part * data.share[i]) / 255 : part, start < lo || end > hi);
    }
  },

  /* [lo, hi] ns of a rank; with a step, these count from its start of it and end with it. */
  window(rank, lo, hi, step) {
    if (!Number.isInteger(step)) return [lo, hi];
    const found = this.steps[step].ranks.find((of) => of[0] === rank);
    const [start, end] = found ? [found[1] * 1e3, found[2] * 1e3] : [0, 0];
    const clip = (ns) => Math.min(end, Math.max(start, ns));
    return [clip(start + lo), clip(start + hi)];
  },

  /* [lo, hi] ns of some lanes. */
  statistics(ids, lo, hi, step) {
    const windows = new Map();
    const lanes = ids.map((id) => this.laneAt(id)).filter((lane) => lane && this.tile.lanes.has(lane.id));
    const ranks = [...new Set(lanes.map((lane) => lane.rank))];
    ranks.forEach((rank) => windows.set(rank, this.window(rank, lo, hi, step)));
    const named = lanes.filter((lane) => lane.kind !== "causes");
    const chosen = named.length ? named : lanes;
    const merged = chosen.filter((lane) => this.tile.lanes.get(lane.id).bins).length;
    const names = this.byName(chosen, windows);
    const causes = this.byCause(ranks, windows);
    const parts = causes.slice(0, LARGEST_CAUSES).map((row) => `${row.cause} ${Math.round(row.share * 100)} %`);
    const one = ranks.length === 1 ? "rank" : "ranks";
    return {
      span_us: (hi - lo) / 1e3,
      lanes: ids.length,
      ranks: `${one} ${ranks.length > 8 ? ranks.length : ranks.join(", ")}`,
      names: [...names, ...this.idle(chosen, names, windows)],
      causes,
      idle: names.length ? "" : `Nothing runs on the selected lanes. Meanwhile, time goes to: ${parts.join(", ")}.`,
      note: merged ? `This file holds ${merged} of these lanes merged: busy time by kind, no names.` : "",
    };
  },

  kindWords(kind) {
    return OTHER_KINDS[kind] || this.info.kinds.find(([known]) => known === kind)[1];
  },

  byName(lanes, windows) {
    const rows = new Map();
    lanes.forEach((lane) => {
      const data = this.tile.lanes.get(lane.id);
      const of_ns = selected(lanes, lane.kind, windows);
      this.inside(data, ...windows.get(lane.rank), (i, ns, isCut) => {
        const name = data.bins ? "(merged)" : this.tile.names[data.name[i]];
        const key = [lane.kind, data.category[i], name].join();
        const what = this.info.categories[data.category[i]].words;
        if (!rows.has(key)) rows.set(key, { ...empty(this.kindWords(lane.kind), name, what), of_ns });
        add(rows.get(key), ns, isCut, data.bins);
      });
    });
    const found = [...rows.values()].filter((row) => row.total_ns > 0).sort(before);
    return found.slice(0, MOST_NAMES).map(({ of_ns, ...row }) => {
      const mean_ns = row.calls ? row.total_ns / row.calls : null;
      return { ...row, mean_ns, share: row.total_ns / of_ns };
    });
  },

  idle(lanes, names, windows) {
    return [...new Set(lanes.map((lane) => lane.kind))].flatMap((kind) => {
      const words = this.kindWords(kind);
      const of_ns = selected(lanes, kind, windows);
      const total_ns = of_ns - sum(names.filter((row) => row.kind === words));
      return total_ns > 0 ? [{ ...empty(words, "nothing", "idle"), total_ns, share: total_ns / of_ns }] : [];
    });
  },

  byCause(ranks, windows) {
    const totals = new Map();
    this.info.lanes
      .filter((lane) => lane.kind === "causes" && ranks.includes(lane.rank) && this.tile.lanes.has(lane.id))
      .forEach((lane) => {
        const data = this.tile.lanes.get(lane.id);
        this.inside(data, ...windows.get(lane.rank), (i, ns) => {
          totals.set(data.category[i], (totals.get(data.category[i]) || 0) + ns);
        });
      });
    const whole = ranks.map((rank) => windows.get(rank)).reduce((total, [lo, hi]) => total + hi - lo, 0);
    const row = (cause, total_ns) => ({ cause, total_ns, share: total_ns / whole });
    const booked = [...totals].map(([n, ns]) => row(this.info.categories[n].words, ns));
    const rest = whole - sum(booked);
    const found = booked.sort((a, b) => b.total_ns - a.total_ns);
    return rest > 1 ? [...found, row("outside of the steps", rest)] : found;
  },
});

const empty = (kind, name, what) => {
  return { kind, name, what, calls: 0, cut: 0, total_ns: 0, mean_ns: null, min_ns: null, max_ns: null, share: 0 };
};

function add(row, ns, isCut, isMerged) {
  row.total_ns += ns;
  if (isMerged) return;
  row.calls += 1;
  row.cut += isCut ? 1 : 0;
  row.min_ns = row.min_ns === null ? ns : Math.min(row.min_ns, ns);
  row.max_ns = Math.max(row.max_ns || 0, ns);
}

/* Search in what a file holds: the names of slices that are not merged. As dashboard/timeline/search.py, which knows
   what launched a slice too. */
const MOST_HITS = 200; // of one page
const WHOLE_BINS = 1000; // in which hits are marked on the whole run
const TOUCHES_US = 0.5; // a communication is cut where its last member arrived: times have this resolution

/* "rank 7 step 12 words", in any order. */
function sought(text) {
  let words = text.toLowerCase();
  const number = (what) => {
    const known = new RegExp(`\\b${what}\\s+(\\d{1,9})\\b`).exec(words);
    if (known) words = words.replace(known[0], " ");
    return known ? Number(known[1]) : null;
  };
  const [rank, step] = [number("rank"), number("step")];
  return { rank, step, words: words.trim() };
}

/* First and last bin of each run of bins with hits, in turn. */
function spots(hits, lo, hi, bins) {
  const touched = new Uint8Array(bins);
  const bin = (us) => Math.min(bins - 1, Math.max(0, Math.floor(((us * 1e3 - lo) / (hi - lo)) * bins)));
  hits.forEach((hit) => touched.fill(1, bin(hit.start_us), bin(hit.start_us + hit.dur_us) + 1));
  const edges = [];
  touched.forEach((is, i) => {
    if (is && !touched[i - 1]) edges.push(i);
    if (is && !touched[i + 1]) edges.push(i);
  });
  return edges;
}

Object.assign(ddprof.Held.prototype, {
  search(text, first) {
    const asked = sought(text);
    const all = this.matching(asked);
    const calls = all.filter((hit) => !hit.goesOn);
    const ranks = [...new Set(calls.map((hit) => hit.rank))];
    const known = [...new Set(this.info.lanes.map((lane) => lane.rank))];
    const only = !asked.words && asked.step === null;
    const total_us = all.reduce((sum, hit) => sum + hit.dur_us, 0);
    const found = `${calls.length.toLocaleString("en")} hits on ${ranks.length} of ${known.length} ranks`;
    return {
      count: calls.length,
      total_us,
      ranks,
      rank: only && known.includes(asked.rank) ? asked.rank : null,
      first,
      hits: calls.slice(first, first + MOST_HITS),
      bins: WHOLE_BINS,
      places: spots(all, this.info.lo_ns, this.info.hi_ns, WHOLE_BINS),
      said: calls.length ? `${found}, ${ddprof.time(total_us)} in all` : this.nothing(asked, known),
    };
  },

  nothing({ rank, words, step }, known) {
    if (rank !== null && !known.includes(rank)) return `No rank ${rank} in this file.`;
    if (!words && step === null) return rank === null ? "Type what to search for" : `rank ${rank}`;
    if (!words) return `No step ${step} in this file.`;
    const merged = [...this.tile.lanes.values()].filter((data) => data.bins).length;
    const left = merged ? `the ${merged} lanes whose slices are merged here, ` : "";
    const not = `Not searched: ${left}operators and modules; ddprof serve searches all.`;
    return `Nothing named “${words}” on ${known.length} ranks. Searched: names of slices. ${not}`;
  },

  /* Slices that match, in order of time. */
  matching({ rank, step, words }) {
    const hits = [];
    if (!words && step === null) return hits;
    this.tile.lanes.forEach((data, id) => {
      const lane = this.laneAt(id);
      if (data.bins || lane.kind === "causes" || (rank !== null && lane.rank !== rank)) return;
      if (!words && lane.kind !== "steps") return;
      const within = step === null ? null : this.stepOf(lane.rank, step);
      data.start.forEach((start, i) => {
        const name = this.tile.names[data.name[i]];
        const hit = { lane: id, rank: lane.rank, row: data.row[i], name, dur_us: data.dur[i] };
        hit.start_us = this.tile.lo / 1e3 + start;
        if (!name.toLowerCase().includes(words)) return;
        if (step !== null && !(within && within(lane, i, start, start + data.dur[i]))) return;
        hit.goesOn = i > 0 && data.name[i - 1] === data.name[i] && data.category[i - 1] !== data.category[i];
        hit.goesOn = hit.goesOn && Math.abs(data.start[i - 1] + data.dur[i - 1] - start) < TOUCHES_US;
        hits.push(hit);
      });
    });
    return hits.sort((a, b) => a.start_us - b.start_us);
  },

  /* Whether a slice is in a step of its rank; the step is named by its number or else by the trace's mark. */
  stepOf(rank, number) {
    const lane = this.info.lanes.find((l) => l.rank === rank && l.kind === "steps");
    const data = lane && this.tile.lanes.get(lane.id);
    if (!data || data.bins) return null;
    const names = Array.from(data.name, (n) => this.tile.names[n]);
    const exact = names.findIndex((name) => name.split(" (")[0] === `step ${number}`);
    const at = exact >= 0 ? exact : names.findIndex((name) => name.endsWith(`(marked ${number})`));
    const [begins, ends] = [data.start[at], data.start[at] + data.dur[at]];
    if (at < 0) return null;
    return (of, i, start, end) => (of.kind === "steps" ? i === at : start < ends && end > begins);
  },

  places(text, tile) {
    const hits = this.matching(sought(text));
    const by = (key) => {
      const groups = new Map();
      hits.forEach((hit) => {
        if (!groups.has(hit[key])) groups.set(hit[key], []);
        groups.get(hit[key]).push(hit);
      });
      return Object.fromEntries([...groups].map(([k, some]) => [k, spots(some, tile.lo, tile.hi, tile.bins)]));
    };
    return { rows: hits.map((hit) => hit.row), lanes: by("lane"), ranks: by("rank") };
  },
});

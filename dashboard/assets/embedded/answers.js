/* The timeline's questions answered from what a file holds: a tile of the whole run, the longest waits, the critical
   path. The dashboard's server answers the same (dashboard/timeline/inspect.py). */
ddprof.Held = class {
  /* `held`: {config, info, waits, path, steps}. */
  constructor(held, tile) {
    Object.assign(this, held, { tile });
  }

  laneAt(id) {
    return this.info.lanes.find((lane) => lane.id === id);
  }

  /* The lane and place of a slice, by the number that identifies it. */
  find(row) {
    for (const [lane, data] of this.tile.lanes) {
      const place = data.bins ? -1 : data.row.indexOf(row);
      if (place >= 0) return { lane: this.laneAt(lane), data, place };
    }
    throw new Error("no such slice");
  }

  slice(row) {
    const { lane, data, place } = this.find(row);
    const start_us = this.tile.lo / 1e3 + data.start[place];
    const dur_us = data.dur[place];
    const end_us = start_us + dur_us;
    const isOf = (wait) => wait.victim === lane.rank && wait.start_us < end_us && wait.ready_us > start_us;
    const facts = this.waits.filter(isOf).slice(0, 1).map(ddprof.waitWords);
    const name = this.tile.names[data.name[place]];
    const category = this.info.categories[data.category[place]].words;
    return { name, category, rank: lane.rank, lane: lane.label, start_us, dur_us, facts, members: [] };
  }

  waitsIn(lo, hi) {
    return this.waits.filter((w) => w.ready_us > lo && w.start_us < hi);
  }
};

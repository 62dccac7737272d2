/* The timeline's questions answered from what a file holds: a tile of the whole run, the longest waits, the critical
   path. The dashboard's server answers the same (dashboard/timeline/inspect.py). */
(function () {
  "use strict";
  const ddprof = window.ddprof;
  const MOST_NAMES = 12;
  const COUNTED = ["stream", "comm", "host"]; // kinds of lanes whose slices are listed by name

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

    /* Calls `add` with category, us inside [lo, hi] and name of each slice of a lane. Merged lanes have no names, and
       their times are as exact as their bins. */
    busy(data, lo, hi, add) {
      const offset = this.tile.lo / 1e3;
      const width = (this.tile.hi - this.tile.lo) / 1e3 / this.tile.bins;
      const count = data.bins ? data.share.length : data.start.length;
      for (let i = 0; i < count; i++) {
        const start = offset + (data.bins ? i * width : data.start[i]);
        const length = data.bins ? width : data.dur[i];
        const inside = Math.min(hi, start + length) - Math.max(lo, start);
        if (inside <= 0) continue;
        if (data.bins) add(data.category[i], (inside * data.share[i]) / 255, null);
        else add(data.category[i], inside, data.name[i]);
      }
    }

    /* [lo, hi] us of the run; with a step, these count from the rank's start of it and end with it. */
    within(rank, lo, hi, step) {
      if (!Number.isInteger(step)) return [lo, hi];
      const [, start, end] = this.steps[step].ranks.find((of) => of[0] === rank) || [rank, 0, 0];
      return [Math.max(start, start + lo), Math.min(end, start + hi)];
    }

    /* Busy time by lane and kind, and the names that take most of it, in [lo, hi] us. */
    statistics(lanes, lo, hi, step) {
      const parts = [];
      const names = new Map();
      lanes
        .filter((id) => this.tile.lanes.has(id))
        .forEach((id) => {
          const lane = this.laneAt(id);
          const sums = new Map();
          const isCounted = COUNTED.includes(lane.kind);
          const part = this.within(lane.rank, lo, hi, step);
          this.busy(this.tile.lanes.get(id), ...part, (category, us, name) => {
            sums.set(category, (sums.get(category) || 0) + us);
            if (isCounted && name !== null) count(names, name, us);
          });
          sums.forEach((busy_us, category) => {
            const words = this.info.categories[category].words;
            const share = busy_us / (hi - lo);
            if (busy_us > 0) parts.push({ rank: lane.rank, lane: lane.label, category: words, busy_us, share });
          });
        });
      const longest = [...names].sort(([, a], [, b]) => b.total_us - a.total_us).slice(0, MOST_NAMES);
      const told = longest.map(([name, sum]) => ({ name: this.tile.names[name], ...sum }));
      return { span_us: hi - lo, parts, names: told };
    }

    waitsIn(lo, hi) {
      return this.waits.filter((w) => w.ready_us > lo && w.start_us < hi);
    }
  };

  function count(names, name, us) {
    const sum = names.get(name) || { count: 0, total_us: 0 };
    sum.count += 1;
    sum.total_us += us;
    names.set(name, sum);
  }
})();

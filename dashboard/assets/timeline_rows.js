/* Rows of the timeline: one line per rank, or all its lanes where it is open; hosts as headings. */
(function () {
  "use strict";
  const ddprof = window.ddprof;
  const TALL = 20, SMALL = 13, LEAST = 9, MOST = 30, MANY = 16, VERY_MANY = 100, MOST_OPERATORS = 4;

  Object.assign(ddprof.Timeline.prototype, {
    /* Rows from top to bottom: a closed rank is the one line of where its time goes. */
    layout() {
      const ranks = [...new Set(this.info.lanes.map((l) => l.rank))], hosts = new Set(this.info.lanes.map((l) => l.host));
      const least = ranks.length > VERY_MANY ? LEAST : ranks.length > MANY ? SMALL : TALL;
      const closed = Math.max(least, Math.min(MOST, Math.floor(360 / ranks.length)));
      const named = new Set(this.config.culprits);
      this.rows = [];
      this.tall = 0;
      const place = (row, height) => { this.rows.push({ ...row, top: this.tall, height }); this.tall += height; };
      let host = null;
      ranks.forEach((rank) => {
        const lanes = this.info.lanes.filter((l) => l.rank === rank), open = this.open.has(rank);
        if (hosts.size > 1 && hosts.size < ranks.length && lanes[0].host !== host) place({ label: "host " + (host = lanes[0].host), isHost: true }, SMALL + 3);
        const label = (open ? "▾ " : "▸ ") + "rank " + rank + (named.has(rank) ? " ◀" : "") + (hosts.size === ranks.length && lanes[0].host ? " · " + lanes[0].host : "");
        if (!open) { place({ label, rank, lane: lanes[0].id, isRank: true }, closed); return; }
        place({ label, rank, isRank: true }, TALL);
        lanes.filter((l) => this.kinds.has(l.kind) || l.kind === "ops" || l.kind === "workers").forEach((l) => place({ label: l.label, rank, lane: l.id }, ranks.length > MANY ? SMALL : TALL));
      });
      this.resize();
    },

    visibleRows() {
      const shift = ddprof.AXIS - this.scroller.scrollTop;
      return this.rows.map((r) => ({ ...r, y: r.top + shift })).filter((r) => r.y + r.height > ddprof.AXIS && r.y < this.height);
    },

    /* Where a rank's lanes are on the canvas, null where its lanes are not in the picture. */
    rankPlace(rank) {
      const mine = this.rows.filter((r) => r.rank === rank);
      if (!mine.length) return null;
      const last = mine[mine.length - 1], y = mine[0].top + ddprof.AXIS - this.scroller.scrollTop;
      return { y, height: last.top + last.height - mine[0].top };
    },

    /* The line of where a rank's time goes: the critical path is drawn along it. */
    pathPlaces() {
      const shift = ddprof.AXIS - this.scroller.scrollTop, places = new Map();
      this.rows.forEach((r) => { if (r.lane !== undefined && !places.has(r.rank)) places.set(r.rank, { y: r.top + shift, height: r.height }); });
      return places;
    },

    toggleRank(row) {
      if (!row || row.rank === undefined || row.rank === null) return;
      const opens = !this.open.has(row.rank);
      opens ? this.open.add(row.rank) : this.open.delete(row.rank);
      this.say.textContent = `rank ${row.rank} ${opens ? "opened" : "closed"}`;
      this.layout();
      this.refetch();
      if (this.operators) this.expand();
    },

    openAll() {
      const ranks = this.info.lanes.map((l) => l.rank), all = ranks.every((r) => this.open.has(r));
      this.open = new Set(all ? [] : ranks);
      this.layout();
      this.refetch();
    },

    /* Operators are read from the traces of the open ranks again; lanes and slices are numbered anew. */
    async expand() {
      if (this.operators && !this.open.size) this.open.add(this.info.lanes[0].rank);
      const wanted = this.operators ? [...this.open].sort((a, b) => a - b).slice(0, MOST_OPERATORS) : [];
      const expanded = wanted.join(",");
      if (expanded === (this.expanded || "")) { this.layout(); return; }
      this.say.textContent = wanted.length ? `reading operators of rank ${wanted.join(", ")} …` : "";
      try {
        const info = await ddprof.timelineData.lanes({ run: this.config.run, expanded }, this.config.ranks);
        Object.assign(this, { expanded, info, tile: null, selected: null, details: null, pinned: null, hover: null, hits: [], marked: null });
        const more = this.operators && this.open.size > MOST_OPERATORS ? ` of ${this.open.size} open ranks, the first ${MOST_OPERATORS}` : "";
        this.say.textContent = wanted.length ? `operators of rank ${wanted.join(", ")}${more}` : "";
        this.layout();
        this.refetch();
      } catch (error) { this.say.textContent = String(error.message); }
    },
  });
})();

/* Rows of the timeline: one line per rank, or all its lanes where it is open; hosts as headings. */
(function () {
  "use strict";
  const ddprof = window.ddprof;
  const TALL = 20; // px: heights of rows
  const SMALL = 13; // px, where there are many ranks
  const LEAST = 9; // px, where there are very many
  const MOST = 30; // px of a closed rank, where there are few
  const SCREEN = 360; // px that closed ranks share
  const MANY = 16; // ranks
  const VERY_MANY = 100; // ranks
  const MOST_OPERATORS = 4; // ranks whose operators are read: each is a trace

  Object.assign(ddprof.Timeline.prototype, {
    /* Rows from top to bottom: a closed rank is the one line of where its time goes. */
    layout() {
      const ranks = [...new Set(this.info.lanes.map((l) => l.rank))];
      const hosts = new Set(this.info.lanes.map((l) => l.host)).size;
      const least = ranks.length > VERY_MANY ? LEAST : ranks.length > MANY ? SMALL : TALL;
      const closed = Math.max(least, Math.min(MOST, Math.floor(SCREEN / ranks.length)));
      this.rows = [];
      this.tall = 0;
      let host = null;
      ranks.forEach((rank) => {
        const lanes = this.info.lanes.filter((l) => l.rank === rank);
        if (hosts > 1 && hosts < ranks.length && lanes[0].host !== host) {
          host = lanes[0].host;
          this.place({ label: "host " + host, isHost: true }, SMALL + 3);
        }
        const label = this.rankLabel(rank, hosts === ranks.length ? lanes[0].host : "");
        if (this.open.has(rank)) this.placeOpen(rank, label, lanes, ranks.length > MANY ? SMALL : TALL);
        else this.place({ label, rank, lane: lanes[0].id, isRank: true }, closed);
      });
      this.resize();
    },

    place(row, height) {
      this.rows.push({ ...row, top: this.tall, height });
      this.tall += height;
    },

    placeOpen(rank, label, lanes, height) {
      const isShown = (lane) => this.kinds.has(lane.kind) || lane.kind === "ops" || lane.kind === "workers";
      this.place({ label, rank, isRank: true }, TALL);
      lanes.filter(isShown).forEach((lane) => this.place({ label: lane.label, rank, lane: lane.id }, height));
    },

    rankLabel(rank, host) {
      const named = this.config.culprits.includes(rank) ? " ◀" : "";
      return `${this.open.has(rank) ? "▾" : "▸"} rank ${rank}${named}${host ? " · " + host : ""}`;
    },

    laneRows() {
      return this.rows.filter((r) => r.lane !== undefined);
    },

    activeRow() {
      return this.rows.find((r) => r.lane === this.activeLane);
    },

    /* From a row's place among all rows to its place on the canvas. */
    shift() {
      return ddprof.AXIS - this.scroller.scrollTop;
    },

    visibleRows() {
      const shift = this.shift();
      const isVisible = (r) => r.y + r.height > ddprof.AXIS && r.y < this.height;
      return this.rows.map((r) => ({ ...r, y: r.top + shift })).filter(isVisible);
    },

    /* Where a rank's lanes are on the canvas, null where its lanes are not in the picture. */
    rankPlace(rank) {
      const mine = this.rows.filter((r) => r.rank === rank);
      if (!mine.length) return null;
      const first = mine[0];
      const last = mine[mine.length - 1];
      return { y: first.top + this.shift(), height: last.top + last.height - first.top };
    },

    /* The line of where each rank's time goes: the critical path is drawn along it. */
    pathPlaces() {
      const places = new Map();
      const shift = this.shift();
      this.laneRows().forEach((r) => {
        if (!places.has(r.rank)) places.set(r.rank, { y: r.top + shift, height: r.height });
      });
      return places;
    },

    toggleRank(row) {
      if (!row || row.rank === undefined || row.rank === null) return;
      const opens = !this.open.has(row.rank);
      if (opens) this.open.add(row.rank);
      else this.open.delete(row.rank);
      this.tell(`rank ${row.rank} ${opens ? "opened" : "closed"}`);
      this.layout();
      this.refetch();
      if (this.operators) this.expand();
    },

    openAll() {
      const ranks = this.info.lanes.map((l) => l.rank);
      const all = ranks.every((r) => this.open.has(r));
      this.open = new Set(all ? [] : ranks);
      this.layout();
      this.refetch();
    },

    toggleKind(kind, on) {
      if (on) this.kinds.add(kind);
      else this.kinds.delete(kind);
      this.layout();
      this.refetch();
    },

    /* Operators are read from the traces of the open ranks again; lanes and slices are numbered anew. */
    async expand() {
      if (this.operators && !this.open.size) this.open.add(this.info.lanes[0].rank);
      const wanted = this.operators ? [...this.open].sort((a, b) => a - b).slice(0, MOST_OPERATORS) : [];
      const expanded = wanted.join(",");
      const ranks = wanted.join(", ");
      if (expanded === this.expanded) {
        this.layout();
        return;
      }
      this.tell(ranks ? `reading operators of rank ${ranks} …` : "");
      await this.attempt(async () => {
        const info = await ddprof.timelineData.lanes({ run: this.config.run, expanded }, this.config.ranks);
        Object.assign(this, { expanded, info });
        this.forget();
        const some = this.operators && this.open.size > MOST_OPERATORS;
        const more = some ? ` of ${this.open.size} open ranks, the first ${MOST_OPERATORS}` : "";
        this.tell(ranks ? `operators of rank ${ranks}${more}` : "");
        this.layout();
        this.refetch();
      });
    },
  });
})();

/* Rows of the timeline: one line per rank, or all its lanes where it is open; groups of ranks under headings. */
const TALL = 20; // px: heights of rows
const SMALL = 13; // px, where there are many ranks
const LEAST = 9; // px, where there are very many
const HEAD = 16; // px of a group's heading
const MOST = 30; // px of a closed rank, where there are few
const SCREEN = 360; // px that closed ranks share
const MANY = 16; // ranks
const VERY_MANY = 100; // ranks

Object.assign(ddprof.Timeline.prototype, {
  /* Rows from top to bottom: a closed rank is the one line of where its time goes, a closed group that of one. */
  layout() {
    const groups = this.groups();
    const count = this.ranks().length;
    const least = count > VERY_MANY ? LEAST : count > MANY ? SMALL : TALL;
    this.closedTall = Math.max(least, Math.min(MOST, Math.floor(SCREEN / count)));
    this.groupTall = Math.max(HEAD, Math.min(MOST, Math.floor(SCREEN / groups.length)));
    this.openTall = count > MANY ? SMALL : TALL;
    this.rows = [];
    this.tall = 0;
    groups.forEach((group) => {
      const isClosed = group.key !== null && this.isGroupClosed(group);
      if (isClosed) this.placeClosed(group);
      else if (group.key !== null) this.place({ label: `▾ ${group.label}`, group, isHost: true }, HEAD);
      if (!isClosed) group.ranks.forEach((rank) => this.placeRank(rank));
    });
    this.placeCounters();
    this.resize();
  },

  placeClosed(group) {
    const rank = this.latestOf(group.ranks);
    const lane = this.lanesOn(rank)[0].id;
    const named = group.ranks.some((of) => this.config.culprits.includes(of)) ? " ◀" : "";
    const label = `▸ ${group.label} (${rank})${named}`;
    this.place({ label, group, rank, lane, isHost: true, isClosed: true }, this.groupTall);
  },

  placeRank(rank) {
    const lanes = this.lanesOn(rank);
    const label = this.rankLabel(rank, this.isAlone ? lanes[0].host : "");
    if (this.open.has(rank)) this.placeOpen(rank, label, lanes, this.openTall);
    else this.place({ label, rank, lane: lanes[0].id, isRank: true }, this.closedTall);
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
    const late = this.lateWords(rank);
    return `${this.open.has(rank) ? "▾" : "▸"} rank ${rank}${named}${late}${host ? " · " + host : ""}`;
  },

  laneRows() {
    return this.rows.filter((r) => r.lane !== undefined);
  },

  activeRow() {
    return this.rows.find((r) => r.lane === this.activeLane);
  },

  /* Scrolls to a row that is not in view. */
  bring(row) {
    const top = this.scroller.scrollTop;
    if (row && (row.top < top || row.top + row.height > top + this.height - ddprof.AXIS))
      this.scroller.scrollTop = Math.max(0, row.top - this.height / 3);
  },

  /* From a row's place among all rows to its place on the canvas. */
  shift() {
    return ddprof.AXIS - this.scroller.scrollTop;
  },

  visibleRows() {
    const shift = this.shift();
    const isVisible = (r) => r.top + shift + r.height > ddprof.AXIS && r.top + shift < this.height;
    return this.rows.filter(isVisible).map((r) => ({ ...r, y: r.top + shift }));
  },

  /* Where a rank's lanes are on the canvas, null where its lanes are not in the picture. */
  rankPlace(rank) {
    const mine = this.rows.filter((r) => r.rank === rank || (r.isClosed && r.group.ranks.includes(rank)));
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
      const ranks = r.isClosed ? r.group.ranks : [r.rank];
      ranks.forEach((rank) => places.has(rank) || places.set(rank, { y: r.top + shift, height: r.height }));
    });
    return places;
  },
});

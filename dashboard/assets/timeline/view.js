/* The window in time that is shown: its moves, its size on the screen, its address, and the tile that fills it. */
const LEAST_NS = 200; // of a window
const MARGIN = 0.25; // of the window's length, fetched on both sides
const FETCH_AFTER_MS = 80; // that the view has been still
const LINK_AFTER_MS = 300; // that the view has been still
const LEAST_PX = 260; // height of the picture
const BELOW_PX = 40; // left free below the picture, for what is said

Object.assign(ddprof.Timeline.prototype, {
  /* Shows [lo, hi] ns, as far as the run reaches. */
  show(lo, hi) {
    const [first, last] = this.bounds;
    const middle = (lo + hi) / 2;
    const width = Math.min(Math.max(LEAST_NS, hi - lo), last - first);
    this.lo = Math.min(Math.max(middle - width / 2, first), last - width);
    this.hi = this.lo + width;
    this.refetch();
    clearTimeout(this.linked);
    this.linked = setTimeout(() => this.link(), LINK_AFTER_MS);
  },

  zoom(factor, at) {
    const pivot = at === undefined ? (this.lo + this.hi) / 2 : at;
    this.show(pivot - (pivot - this.lo) * factor, pivot + (this.hi - pivot) * factor);
  },

  pan(share) {
    const by = (this.hi - this.lo) * share;
    this.show(this.lo + by, this.hi + by);
  },

  /* The view in the address: a copied link shows a colleague the same picture. */
  link() {
    if (this.info.fixed) return;
    const address = new URL(window.location.href);
    address.searchParams.set("from", (this.lo / 1e3).toFixed(1));
    address.searchParams.set("to", (this.hi / 1e3).toFixed(1));
    const kept = address.searchParams;
    const put = (name, value) => (value === null ? kept.delete(name) : kept.set(name, value));
    put("by", this.by === this.byAtFirst ? null : this.by);
    put("order", this.order === "rank" ? null : this.order);
    put("step", this.scrubbed ? String(this.scrubbed.number) : null);
    put("fold", this.isFolded ? "1" : null);
    window.history.replaceState(window.history.state, "", address);
  },

  resize() {
    this.ratio = window.devicePixelRatio || 1;
    this.width = this.scroller.clientWidth;
    const room = window.innerHeight - (this.scroller.getBoundingClientRect().top + window.scrollY) - BELOW_PX;
    this.height = Math.min(Math.max(LEAST_PX, room), this.tall + ddprof.AXIS + 4);
    this.scroller.style.height = this.height + "px";
    this.spacer.style.height = Math.max(0, this.tall + ddprof.AXIS - this.height) + "px";
    this.canvas.width = this.width * this.ratio;
    this.canvas.height = this.height * this.ratio;
    this.canvas.style.height = this.height + "px";
    this.refetch();
  },

  paint() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.painter) return;
      this.painter.paint();
      this.drawMap();
    });
  },

  /* The old tile is drawn stretched at once; the new one comes when the view has been still for a moment. */
  refetch() {
    this.paint();
    if (!this.painter) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fetch(), this.tile ? FETCH_AFTER_MS : 0);
  },

  fetch() {
    const rows = this.visibleRows().filter((r) => r.lane !== undefined);
    const lanes = rows.map((r) => r.lane);
    const margin = (this.hi - this.lo) * MARGIN;
    const sequence = ++this.sequence;
    const ranks = rows.map((r) => r.rank);
    const [from, to] = this.runWindow(this.lo - margin, this.hi + margin, ranks);
    const bins = Math.max(1, Math.round(((this.width - ddprof.GUTTER) * (to - from)) / (this.hi - this.lo)));
    const asked = performance.now();
    return this.attempt(async () => {
      const tile = await ddprof.timelineData.tile(this.source(), lanes, from, to, bins);
      if (sequence !== this.sequence) return;
      this.tile = tile;
      this.painter.paint();
      this.record(performance.now() - asked);
      await this.placeHits();
    });
  },

  /* What the benchmark and the tests read: ms of the request, ms until the first picture, tiles so far. */
  record(ms) {
    const told = this.root.dataset;
    told.fetchMs = ms.toFixed(1);
    if (!told.tiles) {
      told.pictureMs = performance.now().toFixed(0);
      this.fetchRest();
    }
    told.tiles = String(Number(told.tiles || 0) + 1);
  },
});

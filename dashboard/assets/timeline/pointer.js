/* The pointer: what is under it, dragging a range, the wheel; and every event that the timeline listens to. */
const DRAG_PX = 4; // a shorter move is a click
const ASK_AFTER_MS = 120; // the pointer rests on a slice before its details are asked for
const TIP_PX = 360; // width of the tip (timeline.css)
const NEAR_PX = 1.5; // beside a slice: those thinner than a pixel can be hit

Object.assign(ddprof.Timeline.prototype, {
  listen() {
    const canvas = this.canvas;
    this.abort = new AbortController();
    const untilClosed = { signal: this.abort.signal };
    canvas.addEventListener("keydown", (e) => this.key(e));
    canvas.addEventListener("mousemove", (e) => (this.drag ? this.dragging(e) : this.hoverOver(e)));
    canvas.addEventListener("mouseleave", () => this.leave());
    canvas.addEventListener("mousedown", (e) => this.press(e));
    canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    const letter = (e) => e.target === document.body && e.key.length === 1 && this.key(e);
    window.addEventListener("keydown", letter, untilClosed);
    window.addEventListener("pointerdown", (e) => this.pressBeside(e), untilClosed);
    window.addEventListener("mouseup", (e) => this.drop(e), untilClosed);
    window.addEventListener("hashchange", () => this.readNotes(), untilClosed);
    window.addEventListener("resize", () => this.resize(), untilClosed);
    this.scroller.addEventListener("scroll", () => this.refetch());
    this.box.addEventListener("keydown", (e) => e.key === "Enter" && this.seek(e.shiftKey ? -1 : 1));
    new MutationObserver(() => {
      this.painter.theme();
      this.painter.paint();
      this.drawMap();
    }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  },

  /* Place of an event on the canvas. */
  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  },

  ns(x) {
    return this.lo + ((x - ddprof.GUTTER) / (this.width - ddprof.GUTTER)) * (this.hi - this.lo);
  },

  /* What is at a place of the canvas: its row, and the slice or the bin of merged slices. */
  at(x, y) {
    const row = this.visibleRows().find((r) => y >= r.y && y < r.y + r.height);
    const tile = this.tile;
    const data = row && row.lane !== undefined && tile && tile.lanes.get(row.lane);
    if (!data || x < ddprof.GUTTER || this.isOutside(row, this.ns(x) + this.since(row.rank))) return { row };
    const ns = this.ns(x) + this.since(row.rank);
    if (data.bins) {
      const bin = Math.floor(((ns - tile.lo) / (tile.hi - tile.lo)) * tile.bins);
      const share = data.share[bin];
      return { row, bin: share ? { category: data.category[bin], share: share / 255 } : null };
    }
    const us = (ns - tile.lo) / 1e3;
    const near = ((this.hi - this.lo) / (this.width - ddprof.GUTTER) / 1e3) * NEAR_PX;
    for (let i = 0; i < data.start.length; i++) {
      if (us >= data.start[i] - near && us < data.start[i] + Math.max(data.dur[i], near))
        return { row, data, slice: i };
    }
    return { row };
  },

  /* The slice under the pointer, by number; its details are not known yet. */
  pointTo(slice) {
    this.hover = slice;
    this.pointed = null;
  },

  hoverOver(event) {
    const [x, y] = this.point(event);
    const { row, data, slice, bin } = this.at(x, y);
    this.pointNotes(x, row);
    const key = data ? data.row[slice] : null;
    this.tip.hidden = !data && !bin;
    this.tip.style.left = Math.min(x + 14, this.width - TIP_PX) + "px";
    this.tip.style.top = this.canvas.offsetTop + y + 18 + this.scroller.offsetTop + "px";
    if (bin) this.tip.textContent = this.binWords(bin);
    if (key === this.hover) return;
    this.pointTo(key);
    clearTimeout(this.asking);
    if (data) {
      this.tip.textContent = (this.tile.names[data.name[slice]] || "") + " · " + ddprof.time(data.dur[slice]);
      this.asking = setTimeout(() => this.describe(key, false), ASK_AFTER_MS);
    }
    this.paint();
  },

  leave() {
    this.tip.hidden = true;
    this.pointerAt = null;
    this.pointTo(null);
    this.paint();
  },

  press(event) {
    const [x, y] = this.point(event);
    if (x > ddprof.GUTTER) [this.drag, this.dragY] = [x, y];
    else this.toggleRank(this.at(x, y).row);
  },

  dragging(event) {
    const [x, y] = this.point(event);
    if (Math.abs(x - this.drag) < DRAG_PX) return;
    const rows = this.rowsBetween(y, this.dragY);
    this.choose(this.ns(Math.min(x, this.drag)), this.ns(Math.max(x, this.drag)), rows);
  },

  /* The end of a drag selects a range; a click chooses a lane and a slice. */
  drop(event) {
    if (this.drag === undefined || this.drag === null) return;
    const [x, y] = this.point(event);
    const moved = Math.abs(x - this.drag) >= DRAG_PX;
    this.drag = null;
    if (moved && this.range) {
      this.statistics();
      return;
    }
    this.range = this.area = null;
    const { row, data, slice } = this.at(x, y);
    if (row) this.activeLane = row.lane;
    if (data) {
      this.selected = data.row[slice];
      this.describe(this.selected, true);
    }
    this.paint();
  },

  wheel(event) {
    const [x] = this.point(event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.ns(x));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan((event.deltaX || event.deltaY) / 1500);
    }
  },
});

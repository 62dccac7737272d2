/* What the timeline goes to: findings, waits between ranks, the critical path. */
const LEAST_AROUND_NS = 2000; // beside a finding's span

Object.assign(ddprof.Timeline.prototype, {
  /* To a finding's span, by its number; numbers beyond the last begin again. */
  jump(number) {
    if (!this.spans.length) return;
    this.unfold();
    const span = (this.focus = this.spans[(number + this.spans.length) % this.spans.length]);
    const around = Math.max((span.hi - span.lo) * 0.6, LEAST_AROUND_NS);
    const shown = span.rank === null ? span.culprits : [span.rank, ...span.culprits];
    shown.filter((rank) => this.info.lanes.some((l) => l.rank === rank)).forEach((rank) => this.open.add(rank));
    if (shown.length) this.layout();
    this.show(span.lo - around, span.hi + around);
    this.reveal(span.rank);
    this.tell(span.text);
  },

  jumpBy(count) {
    this.jump(this.spans.indexOf(this.focus) + count);
  },

  reveal(rank) {
    this.bring(this.rows.find((r) => r.rank === rank));
  },

  fetchPath() {
    return this.attempt(async () => {
      const found = await ddprof.timelineData.path(this.source());
      this.path = found.map(([rank, lo, hi]) => ({ rank, lo: lo * 1e3, hi: hi * 1e3 }));
      this.root.dataset.path = String(this.path.length);
      this.paint();
    });
  },

  showPressed() {}, // of two runs no path is drawn: there are no buttons

  togglePath() {
    this.showPath = !this.showPath;
    this.showPressed();
    this.paint();
  },

  async toggleArrows() {
    this.showArrows = !this.showArrows;
    this.showPressed();
    this.arrows = [];
    if (this.showArrows) {
      const waits = await ddprof.timelineData.waits(this.source(), ...this.runWindow(this.lo, this.hi, this.ranks()));
      if (!this.showArrows) return;
      this.arrows = waits.map((w) => ({ ...w, start: w.start_us * 1e3, ready: w.ready_us * 1e3 }));
      this.tell(
        waits.length
          ? `${waits.length} waits; the longest: ${ddprof.waitWords(waits[0])}`
          : "nobody waits for anybody here",
      );
    }
    this.paint();
  },
});

ddprof.waitWords = (w) => `rank ${w.victim} waits ${ddprof.time(w.ready_us - w.start_us)} for rank ${w.culprit}`;

/* What the timeline goes to: findings, matches of a search, waits between ranks, the critical path. */
(function () {
  "use strict";
  const ddprof = window.ddprof;
  const LEAST_AROUND_NS = 2000; // beside a finding's span

  Object.assign(ddprof.Timeline.prototype, {
    /* To a finding's span, by its number; numbers beyond the last begin again. */
    jump(number) {
      if (!this.spans.length) return;
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
      const row = this.rows.find((r) => r.rank === rank);
      const top = this.scroller.scrollTop;
      if (row && (row.top < top || row.top > top + this.height - 120)) {
        this.scroller.scrollTop = Math.max(0, row.top - this.height / 3);
      }
    },

    fetchPath() {
      return this.attempt(async () => {
        const found = await ddprof.timelineData.path(this.source());
        this.path = found.map(([rank, lo, hi]) => ({ rank, lo: lo * 1e3, hi: hi * 1e3 }));
        this.root.dataset.path = String(this.path.length);
        this.paint();
      });
    },

    togglePath() {
      this.showPath = !this.showPath;
      this.paint();
    },

    async toggleArrows() {
      this.showArrows = !this.showArrows;
      this.arrows = [];
      if (this.showArrows) {
        const waits = await ddprof.timelineData.waits(this.source(), this.lo, this.hi);
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

    /* A search again for the same words goes to the next match. */
    seek() {
      if (this.hits.length && this.box.value === this.sought) this.nextHit();
      else this.find();
      this.sought = this.box.value;
    },

    async find() {
      const text = this.box.value.trim();
      this.marked = null;
      this.hits = [];
      if (text) {
        const found = await ddprof.timelineData.search(this.source(), text);
        this.marked = new Set(found.names);
        this.hits = found.hits;
        this.hit = -1;
        this.tell(`${found.count} slices, ${ddprof.time(found.total_us)} in all`);
        if (found.count) this.nextHit();
      }
      this.paint();
    },

    nextHit() {
      if (!this.hits.length) return;
      this.hit = (this.hit + 1) % this.hits.length;
      const hit = this.hits[this.hit];
      const lane = this.laneAt(hit.lane);
      const around = Math.max(hit.dur_us * 1e3 * 2, (this.hi - this.lo) / 20);
      this.activeLane = hit.lane;
      this.show(hit.start_us * 1e3 - around, (hit.start_us + hit.dur_us) * 1e3 + around);
      if (lane) this.reveal(lane.rank);
    },

    /* Whether a search dims what it does not match in a lane: causes and steps have no names of their own. */
    searches(lane) {
      return !["causes", "steps"].includes(this.laneAt(lane).kind);
    },
  });

  ddprof.waitWords = (w) => `rank ${w.victim} waits ${ddprof.time(w.ready_us - w.start_us)} for rank ${w.culprit}`;
})();

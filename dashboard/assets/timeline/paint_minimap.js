/* Painting the map: where the time of all ranks goes, steps above, evidence of findings below, hits of a search. */
const { Painter, Timeline } = ddprof;
const EDGE = 6; // px above the bars, for steps and hits, and below them, for findings
const LEAST = 2; // px of a mark

Object.assign(Timeline.prototype, {
  /* Draws the map where something that is on it has changed, and moves the box. */
  drawMap() {
    if (!this.map.clientWidth) return;
    const known = [this.whole, this.map.clientWidth, this.painter.ink.accent, this.found, this.ratio, this.notes];
    if (!this.mapped || known.some((item, i) => item !== this.mapped[i])) {
      this.mapped = known;
      this.painter.map(this.mapCanvas);
      if (this.whole) this.root.dataset.map = String(this.whole.bins);
    }
    this.moveBox();
  },
});

Object.assign(Painter.prototype, {
  map(canvas) {
    const s = this.state;
    const [width, height] = [s.map.clientWidth, s.map.clientHeight];
    [canvas.width, canvas.height] = [width * s.ratio, height * s.ratio];
    const pen = canvas.getContext("2d");
    pen.setTransform(s.ratio, 0, 0, s.ratio, 0, 0);
    pen.fillStyle = this.ink.ground;
    pen.fillRect(0, 0, width, height);
    if (s.whole) this.mapBars(pen, height - 2 * EDGE);
    const mark = (lo, hi, top, color) => {
      pen.fillStyle = color;
      pen.fillRect(s.mapX(lo), top, Math.max(LEAST, s.mapX(hi) - s.mapX(lo)), EDGE - 1);
    };
    if (s.whole) s.whole.steps.forEach(([, us]) => mark(us * 1e3, us * 1e3, 0, this.ink.quiet));
    s.spans.forEach((span) => mark(span.lo, span.hi, height - EDGE + 1, this.ink.critical));
    s.notes.forEach((note) => mark(note.at, note.at, height - EDGE + 1, this.ink.accent));
    const spots = s.found && s.found.count ? s.found.places : [];
    const { lo_ns: lo, hi_ns: hi } = s.info;
    const at = (bin) => lo + ((hi - lo) * bin) / s.found.bins;
    for (let i = 0; i < spots.length; i += 2) mark(at(spots[i]), at(spots[i + 1] + 1), 0, this.ink.accent);
  },

  /* Bars of the bins, each as high as the share of the ranks' time that something is known of. */
  mapBars(pen, height) {
    const s = this.state;
    const { bins, shares } = s.whole;
    const { lo_ns: lo, hi_ns: hi } = s.info;
    const step = (hi - lo) / bins;
    for (let i = 0; i < bins; i++) {
      const x = s.mapX(lo + i * step);
      const width = s.mapX(lo + (i + 1) * step) - x + 0.3;
      let y = EDGE + height;
      Object.keys(shares).forEach((category) => {
        const tall = (shares[category][i] / 255) * height;
        pen.fillStyle = this.fill[category];
        pen.fillRect(x, y - tall, width, tall);
        y -= tall;
      });
    }
  },
});

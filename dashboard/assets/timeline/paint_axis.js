/* Painting the axis and its grid. */
const { AXIS, GUTTER } = ddprof;

Object.assign(ddprof.Painter.prototype, {
  gridlines() {
    const s = this.state;
    const pen = this.context;
    pen.strokeStyle = this.ink.line;
    pen.globalAlpha = 0.5;
    pen.beginPath();
    ddprof.ticks(s.lo, s.hi, s.width - GUTTER).forEach(([t]) => {
      const x = Math.round(this.x(t)) + 0.5;
      pen.moveTo(x, AXIS);
      pen.lineTo(x, s.height);
    });
    pen.stroke();
    pen.globalAlpha = 1;
  },

  axis() {
    const s = this.state;
    const pen = this.context;
    const middle = AXIS / 2;
    pen.fillStyle = this.ink.ground;
    pen.fillRect(0, 0, s.width, AXIS);
    pen.fillStyle = this.ink.quiet;
    this.write(ddprof.canvasFont(12));
    const ticks = ddprof.ticks(s.lo, s.hi, s.width - GUTTER);
    ticks.forEach(([t, words]) => pen.fillText(words, this.x(t) + 3, middle));
    const width = "width " + ddprof.time((s.hi - s.lo) / 1e3);
    const words = s.isFolded ? `since the rank's start of step ${s.scrubbed.number}` : width;
    this.write(ddprof.canvasFont(11));
    this.text(words, 8, middle, GUTTER - 12);
    pen.fillStyle = this.ink.line;
    pen.fillRect(0, AXIS - 1, s.width, 1);
  },
});

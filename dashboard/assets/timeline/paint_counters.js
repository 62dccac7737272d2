/* Painting counter tracks. */
const { GUTTER, Painter } = ddprof;

Object.assign(Painter.prototype, {
  /* A value holds until the next one; from zero at the bottom to the largest at the top, which is written there. */
  counter(row) {
    const { track, most } = row;
    const pen = this.context;
    const rank = track.rank === null ? undefined : track.rank;
    const of = { rank }; // folded, a host has no step: every moment of it is outside
    const height = (value) => row.y + row.height - 2 - (most ? value / most : 0) * (row.height - 5);
    pen.strokeStyle = this.ink.accent;
    pen.beginPath();
    let before = null;
    track.at_us.forEach((us, i) => {
      if (this.state.isOutside(of, us * 1e3)) return;
      const x = Math.max(GUTTER, this.x(us * 1e3, rank));
      if (before !== null) pen.lineTo(x, before);
      const y = height(track.values[i]);
      pen[before === null ? "moveTo" : "lineTo"](x, y);
      before = y;
    });
    pen.stroke();
    const words = `${most >= 100 ? most.toFixed(0) : most.toPrecision(3)} ${track.unit}`;
    const left = this.state.width - pen.measureText(words).width - 8;
    pen.fillStyle = this.ink.ground;
    pen.fillRect(left - 3, row.y + 1, this.state.width, 13);
    pen.fillStyle = this.ink.quiet;
    pen.fillText(words, left, row.y + 8);
  },
});

/* Painting the selected range, over the rows that it is of. */
const { Painter } = ddprof;

Painter.prototype.selection = function (rows) {
  const s = this.state;
  const pen = this.context;
  if (!s.range) return;
  const x = this.x(s.range[0]);
  const width = this.x(s.range[1]) - x;
  pen.fillStyle = this.ink.accent;
  rows.forEach((row) => {
    if (!s.isChosen(row)) return;
    pen.globalAlpha = 0.18;
    pen.fillRect(x, row.y, width, row.height);
    pen.globalAlpha = 1;
    pen.fillRect(x, row.y, 1, row.height);
    pen.fillRect(x + width - 1, row.y, 1, row.height);
  });
};

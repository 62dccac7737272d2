/* Painting where hits of a search are on lines that do not show them one by one: closed ranks and merged lanes. */
const { GUTTER, Painter } = ddprof;
const TALL = 5; // px of a mark
const LEAST = 3; // px of its width

Object.assign(Painter.prototype, {
  hits(rows) {
    const { found, tile } = this.state;
    const view = found && found.view;
    if (!view) return;
    rows.forEach((row) => {
      const data = tile && tile.lanes.get(row.lane);
      if (row.isClosed) row.group.ranks.forEach((rank) => this.hitMarks(view.ranks[rank], view, { ...row, rank }));
      else if (row.isRank) this.hitMarks(view.ranks[row.rank], view, row);
      else if (data && data.bins) this.hitMarks(view.lanes[row.lane], view, row);
    });
  },

  /* `spots`: first and last bin of each run of bins with hits, in turn. */
  hitMarks(spots, view, row) {
    const pen = this.context;
    const step = (view.hi - view.lo) / view.bins;
    for (let i = 0; spots && i < spots.length; i += 2) {
      const x = this.x(view.lo + spots[i] * step, row.rank);
      const width = Math.max(LEAST, this.x(view.lo + (spots[i + 1] + 1) * step, row.rank) - x);
      if (this.state.isOutside(row, view.lo + spots[i] * step)) continue;
      if (x + width < GUTTER || x > this.state.width) continue;
      pen.fillStyle = this.ink.ground; // marks stand on every colour of slices
      pen.fillRect(x - 1, row.y, width + 2, TALL + 1);
      pen.fillStyle = this.ink.text;
      pen.fillRect(x, row.y, width, TALL);
    }
  },
});

/* The timeline on paper: all rows of the shown range, in strips that a page holds. Nothing is scrolled there. */
const WIDTH = 900; // px of a strip, about the width of A4
const TALLEST = 540; // px of a strip: two stand on a page
const SHARP = 2; // dots per px
const MOST_ROWS = 400; // as many lanes as one tile has (dashboard/timeline/tiles.py)

/* Rows in parts of a strip's height, cut where a rank or host begins if that comes early enough. */
function strips(rows) {
  const found = [];
  const begins = (row) => row.isRank || row.isHost;
  let part = [];
  let height = 0;
  rows.forEach((row, i) => {
    const next = rows.findIndex((r, j) => j > i && begins(r));
    const block = rows.slice(i, next < 0 ? rows.length : next).reduce((sum, r) => sum + r.height, 0);
    const splits = begins(row) && block <= TALLEST && height + block > TALLEST;
    if (part.length && (splits || height + row.height > TALLEST)) {
      found.push(part);
      part = [];
      height = 0;
    }
    part.push({ ...row, top: height });
    height += row.height;
  });
  return part.length ? [...found, part] : found;
}

function strip(timeline, tile, rows) {
  const canvas = ddprof.element("canvas");
  const last = rows[rows.length - 1];
  const state = Object.assign(Object.create(timeline), { canvas, tile, rows, scroller: { scrollTop: 0 } });
  Object.assign(state, { hover: null, activeLane: undefined, ratio: SHARP, width: WIDTH });
  state.height = last.top + last.height + ddprof.AXIS + 2;
  canvas.width = WIDTH * SHARP;
  canvas.height = state.height * SHARP;
  const painter = new ddprof.Painter(canvas, state);
  painter.theme();
  painter.paint();
  return canvas;
}

/* The page waits for this: the browser lays the paper out as soon as the event is over. The theme is light by then
   (shared/paper.js). */
ddprof.Timeline.prototype.drawPaper = function () {
  const rows = this.rows.slice(0, MOST_ROWS);
  const lanes = rows.filter((r) => r.lane !== undefined).map((r) => r.lane);
  const all = this.rows.length;
  const bins = (WIDTH - ddprof.GUTTER) * SHARP;
  const span = this.runWindow(this.lo, this.hi, this.ranks());
  let tile = this.tile;
  let words = "";
  if (rows.length < all) words = `Printed are the first ${rows.length} of ${all} rows; fewer ranks show the others.`;
  try {
    tile = ddprof.timelineData.tileNow(this.source(), lanes, ...span, bins);
  } catch (error) {
    words = `Only rows that were in view have slices: ${error.message}`;
  }
  this.sheets.replaceChildren(...strips(rows).map((part) => strip(this, tile, part)), ddprof.element("p", words));
};

window.addEventListener("beforeprint", () => {
  const timeline = ddprof.timeline;
  if (timeline && timeline.root.isConnected && !timeline.info.fixed) timeline.drawPaper();
});
window.addEventListener("afterprint", () => ddprof.timeline && ddprof.timeline.sheets.replaceChildren());

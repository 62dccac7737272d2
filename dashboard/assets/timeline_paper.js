/* The timeline on paper: all rows of the shown range, in strips that a page holds. Nothing is scrolled there. */
(function () {
  "use strict";
  const ddprof = window.ddprof;
  /* px: of a strip, about A4's width; its height, so that two stand on a page. MOST_ROWS: as many lanes as one tile has (tiles.py). */
  const WIDTH = 900, TALLEST = 540, SHARP = 2, MOST_ROWS = 400;

  /* Rows in parts of a strip's height, cut where a rank or host begins if that comes early enough. */
  function strips(rows) {
    const found = [];
    let part = [], height = 0;
    rows.forEach((row, i) => {
      const begins = row.isRank || row.isHost, next = rows.findIndex((r, j) => j > i && (r.isRank || r.isHost));
      const block = begins ? rows.slice(i, next < 0 ? rows.length : next).reduce((sum, r) => sum + r.height, 0) : 0;
      const full = height + row.height > TALLEST || (begins && block <= TALLEST && height + block > TALLEST);
      if (full && part.length) { found.push(part); part = []; height = 0; }
      part.push({ ...row, top: height });
      height += row.height;
    });
    return part.length ? [...found, part] : found;
  }

  function strip(timeline, tile, rows) {
    const canvas = ddprof.element("canvas"), last = rows[rows.length - 1];
    const state = Object.assign(Object.create(timeline), { canvas, tile, rows, scroller: { scrollTop: 0 }, hover: null, activeLane: undefined });
    Object.assign(state, { ratio: SHARP, width: WIDTH, height: last.top + last.height + ddprof.AXIS + 2 });
    canvas.width = WIDTH * SHARP;
    canvas.height = state.height * SHARP;
    const painter = new ddprof.Painter(canvas, state);
    painter.theme();
    painter.paint();
    return canvas;
  }

  Object.assign(ddprof.Timeline.prototype, {
    /* The page waits for this: the browser lays the paper out as soon as the event is over. The theme is light by then
       (theme.js, page_switch.js). */
    drawPaper() {
      const rows = this.rows.slice(0, MOST_ROWS), lanes = rows.filter((r) => r.lane !== undefined).map((r) => r.lane);
      let tile = this.tile, words = rows.length < this.rows.length ? `Printed are the first ${rows.length} of ${this.rows.length} rows; fewer ranks show the others.` : "";
      try {
        tile = ddprof.timelineData.tileNow(this.source(), lanes, this.lo, this.hi, (WIDTH - ddprof.GUTTER) * SHARP);
      } catch (error) { words = `Only rows that were in view have slices: ${error.message}`; }
      this.sheets.replaceChildren(...strips(rows).map((part) => strip(this, tile, part)), ddprof.element("p", words));
    },
  });

  window.addEventListener("beforeprint", () => {
    const timeline = ddprof.timeline;
    if (timeline && timeline.root.isConnected && !timeline.info.fixed) timeline.drawPaper();
  });
  window.addEventListener("afterprint", () => { if (ddprof.timeline) ddprof.timeline.sheets.replaceChildren(); });
})();

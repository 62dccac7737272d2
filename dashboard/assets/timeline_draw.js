/* Painting of the timeline: axis, lanes, slices, shaded findings, arrows between ranks. Reads the state, changes nothing. */
(function () {
  "use strict";
  const ddprof = (window.ddprof = window.ddprof || {});
  const AXIS = 26, GUTTER = 190, LETTERS_FROM = 14, LABEL_FROM = 44;

  function time(us) {
    const size = Math.abs(us);
    const digits = (v) => (Math.abs(v) >= 100 ? v.toFixed(0) : Math.abs(v) >= 10 ? v.toFixed(1) : v.toFixed(2));
    if (size >= 1e6) return digits(us / 1e6) + " s";
    if (size >= 1e3) return digits(us / 1e3) + " ms";
    return size >= 1 || size === 0 ? digits(us) + " µs" : (us * 1e3).toFixed(0) + " ns";
  }

  /* Ticks of an axis: labels carry as many decimals as the step needs. */
  function ticks(lo, hi, width) {
    const raw = ((hi - lo) / Math.max(1, width)) * 120;
    const power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
    const unit = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 1e2 ? [1e3, "µs"] : [1, "ns"];
    const decimals = Math.max(0, Math.ceil(-Math.log10(step / unit[0]) - 1e-9));
    const found = [];
    for (let t = Math.ceil(lo / step) * step; t <= hi; t += step) found.push([t, (t / unit[0]).toFixed(decimals) + " " + unit[1]]);
    return found;
  }

  /* Waiting, loading and copying also differ by texture: colour is never alone. */
  function texture(context, kind, ink) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = 1.2;
    pen.beginPath();
    if (kind === "hatch") { pen.moveTo(-1, 7); pen.lineTo(7, -1); pen.moveTo(-1, 1); pen.lineTo(1, -1); pen.moveTo(5, 7); pen.lineTo(7, 5); }
    if (kind === "lines") { pen.moveTo(3, 0); pen.lineTo(3, 6); }
    if (kind === "cross") { pen.moveTo(0, 3); pen.lineTo(6, 3); pen.moveTo(3, 0); pen.lineTo(3, 6); }
    pen.stroke();
    if (kind === "dots") pen.fillRect(2, 2, 2, 2);
    return context.createPattern(tile, "repeat");
  }

  class Painter {
    constructor(canvas, state) {
      this.canvas = canvas;
      this.state = state;
      this.context = canvas.getContext("2d");
    }

    /* Colours of the current theme, from the page's own CSS variables. */
    theme() {
      const css = getComputedStyle(document.documentElement);
      const value = (name) => css.getPropertyValue(name).trim();
      this.ink = { ground: value("--ground"), panel: value("--panel"), text: value("--text"), quiet: value("--quiet"),
        line: value("--line"), accent: value("--accent"), critical: value("--critical"), path: value("--text"), onBar: value("--on-bar") };
      this.fill = this.state.info.categories.map((c) => value("--" + c.color) || this.ink.quiet);
      this.texture = this.state.info.categories.map((c) => (c.texture ? texture(this.context, c.texture, this.ink.onBar) : null));
    }

    x(ns) {
      const s = this.state;
      return GUTTER + ((ns - s.lo) / (s.hi - s.lo)) * (s.width - GUTTER);
    }

    paint() {
      const s = this.state, pen = this.context;
      pen.setTransform(s.ratio, 0, 0, s.ratio, 0, 0);
      pen.clearRect(0, 0, s.width, s.height);
      pen.font = "12px system-ui, sans-serif";
      pen.textBaseline = "middle";
      const rows = s.visibleRows();
      pen.save();
      pen.beginPath();
      pen.rect(0, AXIS, s.width, s.height - AXIS);
      pen.clip();
      rows.forEach((row) => this.ground(row));
      pen.save();
      pen.beginPath();
      pen.rect(GUTTER, AXIS, s.width - GUTTER, s.height - AXIS);
      pen.clip();
      this.gridlines();
      rows.forEach((row) => row.lane !== undefined && this.lane(row));
      if (s.showPath) this.criticalPath();
      s.spans.forEach((span) => this.span(span, span === s.focus));
      s.arrows.forEach((a) => this.arrow(a, 0.75));
      if (s.details) this.join(s.details);
      this.selection();
      pen.restore();
      rows.forEach((row) => this.label(row));
      pen.restore();
      this.axis();
    }

    ground(row) {
      const s = this.state, pen = this.context;
      if (row.lane === undefined || row.isHost) { pen.fillStyle = this.ink.panel; pen.fillRect(0, row.y, s.width, row.height); }
      if (row.lane !== undefined && row.lane === s.activeLane) {
        pen.fillStyle = this.ink.panel;
        pen.fillRect(0, row.y, s.width, row.height);
      }
    }

    label(row) {
      const pen = this.context, head = row.lane === undefined || row.isRank;
      pen.fillStyle = head ? this.ink.text : this.ink.quiet;
      pen.font = (head || row.lane === this.state.activeLane ? "600 " : "") + (row.height < 10 ? "9px" : row.height < 14 ? "11px" : "12px") + " system-ui, sans-serif";
      this.text(row.label, head ? 8 : 18, row.y + row.height / 2, GUTTER - (head ? 12 : 24));
    }

    /* Text that ends with … where it does not fit: names of kernels are long. */
    text(words, x, y, room) {
      const pen = this.context;
      let shown = words;
      if (pen.measureText(shown).width > room) {
        let keep = Math.max(1, Math.floor((shown.length * room) / pen.measureText(shown).width) - 1);
        shown = shown.slice(0, keep) + "…";
      }
      pen.fillText(shown, x, y);
    }

    gridlines() {
      const s = this.state, pen = this.context;
      pen.strokeStyle = this.ink.line;
      pen.globalAlpha = 0.5;
      pen.beginPath();
      ticks(s.lo, s.hi, s.width - GUTTER).forEach(([t]) => { const x = Math.round(this.x(t)) + 0.5; pen.moveTo(x, AXIS); pen.lineTo(x, s.height); });
      pen.stroke();
      pen.globalAlpha = 1;
    }

    axis() {
      const s = this.state, pen = this.context;
      pen.fillStyle = this.ink.ground;
      pen.fillRect(0, 0, s.width, AXIS);
      pen.fillStyle = this.ink.quiet;
      pen.font = "12px system-ui, sans-serif";
      ticks(s.lo, s.hi, s.width - GUTTER).forEach(([t, words]) => pen.fillText(words, this.x(t) + 3, AXIS / 2));
      pen.fillText("width " + time((s.hi - s.lo) / 1e3), 8, AXIS / 2);
      pen.fillStyle = this.ink.line;
      pen.fillRect(0, AXIS - 1, s.width, 1);
    }

    lane(row) {
      const tile = this.state.tile, data = tile && tile.lanes.get(row.lane);
      if (!data) return;
      if (data.bins) this.binned(row, data, tile);
      else this.exact(row, data, tile);
    }

    binned(row, data, tile) {
      const pen = this.context, step = (tile.hi - tile.lo) / tile.bins;
      const y = row.y + 1, height = row.height - 2;
      for (let i = 0; i < tile.bins; i++) {
        if (!data.share[i]) continue;
        const x = this.x(tile.lo + i * step), next = this.x(tile.lo + (i + 1) * step);
        if (next < GUTTER || x > this.state.width) continue;
        pen.globalAlpha = Math.max(0.25, data.share[i] / 255);
        pen.fillStyle = this.fill[data.category[i]];
        pen.fillRect(x, y, Math.max(1, next - x), height);
      }
      pen.globalAlpha = 1;
    }

    exact(row, data, tile) {
      const s = this.state, pen = this.context, y = row.y + 1, height = row.height - 2;
      const scale = ((s.width - GUTTER) * 1e3) / (s.hi - s.lo), origin = this.x(tile.lo);
      let column = -1, painted = -1;
      for (let i = 0; i < data.start.length; i++) {
        const x = origin + data.start[i] * scale, width = data.dur[i] * scale;
        if (x + width < GUTTER || x > s.width) continue;
        const kind = data.category[i];
        if (width < 1 && Math.floor(x) === column && kind === painted) continue;
        column = Math.floor(x);
        painted = kind;
        const dim = s.marked && !s.marked.has(data.name[i]) && s.searches(row.lane);
        pen.globalAlpha = dim ? 0.2 : 1;
        pen.fillStyle = this.fill[kind];
        pen.fillRect(x, y, Math.max(1, width > 3 ? width - 0.5 : width), height);
        if (width > 4 && this.texture[kind]) { pen.globalAlpha *= 0.55; pen.fillStyle = this.texture[kind]; pen.fillRect(x, y, width - 0.5, height); }
        pen.globalAlpha = dim ? 0.2 : 1;
        if (width > LETTERS_FROM && height > 11) this.caption(row, data, tile, i, x, width, kind);
        if (s.selected === data.row[i]) { pen.globalAlpha = 1; pen.strokeStyle = this.ink.text; pen.lineWidth = 2; pen.strokeRect(x, y, Math.max(2, width), height); pen.lineWidth = 1; }
      }
      pen.globalAlpha = 1;
    }

    caption(row, data, tile, i, x, width, kind) {
      const pen = this.context, left = Math.max(x, GUTTER) + 4, room = Math.min(x + width, this.state.width) - left - 4;
      const words = room >= LABEL_FROM ? tile.names[data.name[i]] || "" : this.state.info.categories[kind].letter;
      if (room < 8) return;
      pen.fillStyle = this.ink.onBar;
      if (this.texture[kind]) { const w = Math.min(room, pen.measureText(words).width) + 4; const c = pen.fillStyle; pen.fillStyle = this.fill[kind]; pen.fillRect(left - 2, row.y + 2, w, row.height - 4); pen.fillStyle = c; }
      this.text(words, left, row.y + row.height / 2, room);
    }

    /* A line under the work that makes the run as long as it is, and where it passes from rank to rank. */
    criticalPath() {
      const s = this.state, pen = this.context, places = s.pathPlaces();
      pen.strokeStyle = pen.fillStyle = this.ink.path;
      let before = null;
      pen.beginPath();
      s.path.forEach((piece) => {
        const place = places.get(piece.rank), x = this.x(piece.lo), end = this.x(piece.hi);
        const y = place ? place.y + place.height - 2 : null;
        if (y !== null && end >= GUTTER && x <= s.width) {
          pen.fillRect(x, y - 1, Math.max(1, end - x), 3);
          if (before !== null && before !== y && x >= GUTTER) { pen.moveTo(x, before); pen.lineTo(x, y); }
        }
        before = y;
      });
      pen.stroke();
    }

    span(span, focused) {
      const s = this.state, pen = this.context, place = s.rankPlace(span.rank);
      if (!place && span.rank !== null) return;
      const x = this.x(span.lo), width = Math.max(3, this.x(span.hi) - x);
      const top = place ? place.y : AXIS, height = place ? place.height : s.height;
      pen.fillStyle = pen.strokeStyle = this.ink.critical;
      pen.globalAlpha = focused ? 0.16 : 0.08;
      pen.fillRect(x, top, width, height);
      pen.globalAlpha = focused ? 1 : 0.5;
      pen.lineWidth = focused ? 2 : 1;
      pen.strokeRect(x, top + 1, width, height - 2);
      pen.globalAlpha = pen.lineWidth = 1;
    }

    /* From the late rank's arrival to the rank that waited until then. */
    arrow(wait, alpha) {
      const pen = this.context, from = this.state.rankPlace(wait.culprit), to = this.state.rankPlace(wait.victim);
      if (!from || !to) return;
      const x = this.x(wait.ready), y1 = from.y + from.height / 2, y2 = to.y + to.height / 2;
      if (x < GUTTER || x > this.state.width) return;
      const side = y2 > y1 ? -1 : 1;
      pen.globalAlpha = alpha;
      pen.strokeStyle = pen.fillStyle = this.ink.critical;
      pen.beginPath();
      pen.moveTo(x, y1);
      pen.lineTo(x, y2);
      pen.moveTo(this.x(wait.start), y2);
      pen.lineTo(x, y2);
      pen.stroke();
      pen.beginPath();
      pen.moveTo(x, y2);
      pen.lineTo(x - 4, y2 + side * 8);
      pen.lineTo(x + 4, y2 + side * 8);
      pen.fill();
      pen.beginPath();
      pen.arc(x, y1, 3.5, 0, 7);
      pen.fill();
      pen.globalAlpha = 1;
    }

    /* The collective under the pointer: a frame on every rank's part, arrows from the last to arrive. */
    join(details) {
      const pen = this.context, late = details.members.find((m) => m.late);
      details.members.forEach((m) => {
        const place = this.state.rankPlace(m.rank);
        if (!place) return;
        pen.strokeStyle = m.late ? this.ink.critical : this.ink.text;
        pen.lineWidth = 2;
        const x = this.x(m.start_us * 1e3);
        pen.strokeRect(x, place.y + place.height - 4, Math.max(2, this.x(m.end_us * 1e3) - x), 3);
        pen.lineWidth = 1;
        if (late && !m.late && m.ready_us > m.start_us)
          this.arrow({ culprit: late.rank, victim: m.rank, start: m.start_us * 1e3, ready: m.ready_us * 1e3 }, 1);
      });
    }

    selection() {
      const s = this.state, pen = this.context;
      if (!s.range) return;
      const x = this.x(s.range[0]), width = this.x(s.range[1]) - x;
      pen.fillStyle = pen.strokeStyle = this.ink.accent;
      pen.globalAlpha = 0.15;
      pen.fillRect(x, AXIS, width, s.height);
      pen.globalAlpha = 1;
      pen.strokeRect(x, AXIS, width, s.height);
    }
  }

  ddprof.Painter = Painter;
  ddprof.time = time;
  ddprof.AXIS = AXIS;
  ddprof.GUTTER = GUTTER;
})();

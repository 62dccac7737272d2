/* Painting what lies over the slices: critical path, findings, arrows between ranks, a collective. */
const { AXIS, GUTTER, Painter } = ddprof;

Object.assign(Painter.prototype, {
  /* A line under the work that makes the run as long as it is, and where it passes from rank to rank. */
  criticalPath() {
    const s = this.state;
    const pen = this.context;
    const places = s.pathPlaces();
    pen.strokeStyle = pen.fillStyle = this.ink.text;
    let before = null;
    pen.beginPath();
    s.path.forEach((piece) => {
      const place = places.get(piece.rank);
      const [lo, hi] = s.inStep(piece.rank, piece.lo, piece.hi);
      if (lo >= hi) return;
      const x = this.x(lo, piece.rank);
      const end = this.x(hi, piece.rank);
      const y = place ? place.y + place.height - 2 : null;
      if (y !== null && end >= GUTTER && x <= s.width) {
        pen.fillRect(x, y - 1, Math.max(1, end - x), 3);
        if (before !== null && before !== y && x >= GUTTER) {
          pen.moveTo(x, before);
          pen.lineTo(x, y);
        }
      }
      before = s.isFolded ? null : y; // folded, the same moment is not at one place on two ranks
    });
    pen.stroke();
  },

  /* A span of a finding's evidence, on its rank or, where it names none, on all. */
  span(span, isFocused) {
    const s = this.state;
    const pen = this.context;
    const place = s.rankPlace(span.rank);
    if (!place && span.rank !== null) return;
    if (s.isFolded && (span.rank === null || s.isOutside(span, span.lo))) return;
    const rank = span.rank === null ? undefined : span.rank;
    const x = this.x(span.lo, rank);
    const width = Math.max(3, this.x(span.hi, rank) - x);
    const top = place ? place.y : AXIS;
    const height = place ? place.height : s.height;
    pen.fillStyle = pen.strokeStyle = this.ink.critical;
    pen.globalAlpha = isFocused ? 0.16 : 0.08;
    pen.fillRect(x, top, width, height);
    pen.globalAlpha = isFocused ? 1 : 0.5;
    pen.lineWidth = isFocused ? 2 : 1;
    pen.strokeRect(x, top + 1, width, height - 2);
    pen.globalAlpha = pen.lineWidth = 1;
  },

  /* From the late rank's arrival to the rank that waited until then. */
  arrow(wait, alpha) {
    const pen = this.context;
    const from = this.state.rankPlace(wait.culprit);
    const to = this.state.rankPlace(wait.victim);
    if (!from || !to) return;
    const x = this.x(wait.ready, wait.victim);
    const fromX = this.x(wait.ready, wait.culprit);
    const y1 = from.y + from.height / 2;
    const y2 = to.y + to.height / 2;
    if (x < GUTTER || x > this.state.width || this.state.isOutside({ rank: wait.victim }, wait.ready)) return;
    const head = y2 > y1 ? -8 : 8;
    pen.globalAlpha = alpha;
    pen.strokeStyle = pen.fillStyle = this.ink.critical;
    pen.beginPath();
    pen.moveTo(fromX, y1);
    pen.lineTo(x, y2);
    pen.moveTo(this.x(wait.start, wait.victim), y2);
    pen.lineTo(x, y2);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x, y2);
    pen.lineTo(x - 4, y2 + head);
    pen.lineTo(x + 4, y2 + head);
    pen.fill();
    pen.beginPath();
    pen.arc(fromX, y1, 3.5, 0, 7);
    pen.fill();
    pen.globalAlpha = 1;
  },

  /* The collective under the pointer: a frame on every rank's part, arrows from the last to arrive. */
  join(details) {
    const pen = this.context;
    const late = details.members.find((m) => m.late);
    details.members.forEach((m) => {
      const place = this.state.rankPlace(m.rank);
      const start = m.start_us * 1e3;
      if (!place) return;
      if (this.state.isOutside(m, start)) return;
      const x = this.x(start, m.rank);
      const width = Math.max(2, this.x(m.end_us * 1e3, m.rank) - x);
      pen.strokeStyle = m.late ? this.ink.critical : this.ink.text;
      pen.lineWidth = 2;
      pen.strokeRect(x, place.y + place.height - 4, width, 3);
      pen.lineWidth = 1;
      if (!late || m.late || m.ready_us <= m.start_us) return;
      this.arrow({ culprit: late.rank, victim: m.rank, start, ready: m.ready_us * 1e3 }, 1);
    });
  },
});

/* Painting marks: a line at the moment, and a flag with number and note at the top of its rank or of the picture. */
const { AXIS, canvasFont, GUTTER, Painter } = ddprof;
const TALL = 16; // px of a flag
const MOST = 180; // px of its width

Object.assign(Painter.prototype, {
  notes() {
    const s = this.state;
    const flags = [];
    s.notes.forEach((note, i) => {
      const of = { rank: note.rank };
      if (s.isFolded && (note.rank === null || s.isOutside(of, note.at))) return;
      const x = Math.round(this.x(note.at, note.rank === null ? undefined : note.rank));
      if (x < GUTTER || x > s.width) return;
      const place = s.rankPlace(note.rank);
      const seen = place && place.y + place.height > AXIS && place.y < s.height;
      this.flag(flags, x, seen ? Math.max(AXIS, place.y) : AXIS, `${i + 1} ${note.text}`.trim());
    });
  },

  /* Below the flags that were drawn before it, where it would cover one. */
  flag(flags, x, top, words) {
    const pen = this.context;
    pen.fillStyle = this.ink.accent;
    pen.globalAlpha = 0.6;
    pen.fillRect(x, AXIS, 1, this.state.height);
    pen.globalAlpha = 1;
    this.write(canvasFont(11, true));
    const width = Math.min(MOST, this.wide(words) + 8);
    const left = Math.min(x, this.state.width - width);
    const covers = (f) => f.left < left + width && left < f.right && Math.abs(f.top - top) < TALL;
    while (flags.some(covers)) top += TALL;
    flags.push({ left, right: left + width, top });
    pen.fillRect(left, top, width, TALL);
    pen.fillStyle = this.ink.ground;
    this.text(words, left + 4, top + TALL / 2, width - 8);
  },
});

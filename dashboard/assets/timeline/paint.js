/* Painting the timeline: rows, slices, marks, labels. Reads the state, changes nothing. */
const { AXIS, GUTTER } = ddprof;
const MOST_WORDS = 10000; // whose widths are kept, of each font: hundreds of pictures, a megabyte
const font = (size, bold) => `${bold ? "600 " : ""}${size}px system-ui, sans-serif`;

ddprof.canvasFont = font;

ddprof.Painter = class {
  constructor(canvas, state) {
    this.canvas = canvas;
    this.state = state;
    this.context = canvas.getContext("2d");
    this.known = new Map(); // font -> width of words in it
  }

  /* The font of the words that follow. What they are wide is measured once: a frame has those of the one before. */
  write(face) {
    this.context.font = face;
    if (!this.known.has(face)) this.known.set(face, new Map());
    this.widths = this.known.get(face);
  }

  wide(words) {
    if (this.widths.size > MOST_WORDS) this.widths.clear();
    if (!this.widths.has(words)) this.widths.set(words, this.context.measureText(words).width);
    return this.widths.get(words);
  }

  /* Colours of the current theme, from the page's own CSS variables. */
  theme() {
    const css = getComputedStyle(document.documentElement);
    const value = (name) => css.getPropertyValue("--" + name).trim();
    const names = ["ground", "panel", "text", "quiet", "line", "accent", "critical"];
    this.ink = Object.fromEntries([...names.map((name) => [name, value(name)]), ["onBar", value("on-bar")]]);
    const { categories } = this.state.info;
    this.fill = categories.map((c) => value(c.color) || this.ink.quiet);
    this.texture = categories.map((c) => (c.texture ? ddprof.hatching(this.context, this.ink.onBar) : null));
  }

  /* The place of a time of the run on the line of a rank. Without a rank: of a time of the view. */
  x(ns, rank) {
    const s = this.state;
    if (rank !== undefined) ns -= s.since(rank);
    return GUTTER + ((ns - s.lo) / (s.hi - s.lo)) * (s.width - GUTTER);
  }

  paint() {
    const s = this.state;
    const pen = this.context;
    const rows = s.visibleRows();
    pen.setTransform(s.ratio, 0, 0, s.ratio, 0, 0);
    pen.clearRect(0, 0, s.width, s.height);
    this.write(font(12));
    pen.textBaseline = "middle";
    this.within(0, () => {
      rows.forEach((row) => this.ground(row));
      this.within(GUTTER, () => this.content(rows));
      rows.forEach((row) => this.label(row));
    });
    this.axis();
  }

  /* Draws below the axis and right of `left` only. */
  within(left, draw) {
    const s = this.state;
    const pen = this.context;
    pen.save();
    pen.beginPath();
    pen.rect(left, AXIS, s.width - left, s.height - AXIS);
    pen.clip();
    draw();
    pen.restore();
  }

  content(rows) {
    const s = this.state;
    this.gridlines();
    rows.forEach((row) => row.lane !== undefined && this.line(row));
    rows.forEach((row) => row.track && this.counter(row));
    this.hits(rows);
    if (s.showPath) this.criticalPath();
    s.spans.forEach((span) => this.span(span, span === s.focus));
    s.arrows.forEach((wait) => this.arrow(wait, 0.75));
    if (s.details) this.join(s.details);
    this.selection(rows);
    this.notes();
  }

  /* The lane of a row; folded, only what lies in the step of its rank, with its end marked. */
  line(row) {
    const s = this.state;
    if (!s.isFolded) return this.lane(row);
    const step = s.stepOf(row.rank);
    if (!step) return undefined;
    const pen = this.context;
    const [lo, hi] = [this.x(0), this.x(step[1] - step[0])];
    pen.save();
    pen.beginPath();
    pen.rect(lo, row.y, hi - lo, row.height);
    pen.clip();
    this.lane(row);
    pen.restore();
    pen.fillStyle = this.ink.text;
    pen.fillRect(hi, row.y, 1, row.height);
    return undefined;
  }

  ground(row) {
    const isHead = (row.lane === undefined && !row.track) || row.isHost;
    const isActive = row.lane !== undefined && row.lane === this.state.activeLane;
    if (!isHead && !isActive) return;
    this.context.fillStyle = this.ink.panel;
    this.context.fillRect(0, row.y, this.state.width, row.height);
  }

  label(row) {
    const pen = this.context;
    const isHead = (row.lane === undefined && !row.track) || row.isRank || row.isHost;
    const size = row.height < 10 ? 9 : row.height < 14 ? 11 : 12;
    pen.fillStyle = isHead ? this.ink.text : this.ink.quiet;
    this.write(font(size, isHead || (!row.track && row.lane === this.state.activeLane)));
    this.text(row.label, isHead ? 8 : 18, row.y + row.height / 2, GUTTER - (isHead ? 12 : 24));
  }

  /* Text that ends with … where it does not fit: names of kernels are long. */
  text(words, x, y, room) {
    const pen = this.context;
    const width = this.wide(words);
    const kept = Math.max(1, Math.floor((words.length * room) / width) - 1);
    pen.fillText(width > room ? words.slice(0, kept) + "…" : words, x, y);
  }
};

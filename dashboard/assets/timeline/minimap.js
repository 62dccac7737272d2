/* The map above the lanes: the whole run, and the viewed part as a box that is dragged, stretched or moved by keys. */
const { element, time, Timeline } = ddprof;
const LEAST_PX = 6; // width of the box as it is drawn
const PART = 0.2; // of the window's length, that an arrow key moves it
const GROWS = 0.1; // of the window's length, that an arrow key moves one end
const MOVES = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1 };

function slider(name, label) {
  const attributes = { role: "slider", tabindex: "0", "aria-label": label, "aria-orientation": "horizontal" };
  return element("div", "", { class: "tl-map-" + name, "aria-valuemin": "0", "aria-valuemax": "100", ...attributes });
}

Object.assign(Timeline.prototype, {
  buildMap() {
    this.mapCanvas = element("canvas", "", { "aria-hidden": "true" });
    this.mapBox = slider("box", "Viewed part of the run");
    this.mapEnds = [slider("end", "Start of the view"), slider("end", "End of the view")];
    const label = { role: "group", "aria-label": "Map of the whole run" };
    this.map = element("div", [this.mapCanvas, this.mapBox, ...this.mapEnds], { class: "tl-map", ...label });
    this.map.addEventListener("pointerdown", (e) => this.grabMap(e));
    this.mapBox.addEventListener("keydown", (e) => this.keyBox(e));
    this.mapEnds.forEach((end, i) => end.addEventListener("keydown", (e) => this.keyEnd(e, i)));
    return this.map;
  },

  fetchOverview() {
    return this.attempt(async () => {
      this.whole = await ddprof.timelineData.overview(this.source(), this.config.ranks);
      this.paint();
    });
  },

  /* From ns of the run to px of the map, and back. */
  mapX(ns) {
    const [lo, hi] = this.runBounds;
    return ((ns - lo) / (hi - lo)) * this.map.clientWidth;
  },

  mapNs(px) {
    const [lo, hi] = this.runBounds;
    return lo + (px / this.map.clientWidth) * (hi - lo);
  },

  /* The view in times of the run; folded, the part that it covers on any rank. */
  viewed() {
    return this.runWindow(this.lo, this.hi, this.ranks());
  },

  moveBox() {
    const [lo, hi] = this.viewed();
    const width = Math.max(LEAST_PX, this.mapX(hi) - this.mapX(lo));
    const left = Math.min(Math.max(0, this.mapX((lo + hi) / 2) - width / 2), this.map.clientWidth - width);
    this.mapBox.style.left = left + "px";
    this.mapBox.style.width = width + "px";
    this.mapEnds[0].style.left = left + "px";
    this.mapEnds[1].style.left = left + width + "px";
    const said = `from ${time(lo / 1e3)} to ${time(hi / 1e3)}`;
    const [first, last] = this.runBounds;
    const tell = (end, ns, words) => {
      end.setAttribute("aria-valuenow", (((ns - first) / (last - first)) * 100).toFixed(2));
      end.setAttribute("aria-valuetext", words);
    };
    tell(this.mapBox, (lo + hi) / 2, said);
    tell(this.mapEnds[0], lo, time(lo / 1e3));
    tell(this.mapEnds[1], hi, time(hi / 1e3));
  },

  /* Drags the box, or one of its ends; a press beside the box brings its middle there first. */
  grabMap(event) {
    event.preventDefault();
    const end = this.mapEnds.indexOf(event.target);
    (end >= 0 ? this.mapEnds[end] : this.mapBox).focus();
    const place = (e) => this.mapNs(e.clientX - this.map.getBoundingClientRect().left);
    let [lo, hi] = this.viewed();
    this.unfold();
    if (event.target === this.mapCanvas) {
      const half = (hi - lo) / 2;
      [lo, hi] = [place(event) - half, place(event) + half];
      this.show(lo, hi);
    }
    const from = place(event);
    const move = (e) => {
      const by = place(e) - from;
      if (end < 0) this.show(lo + by, hi + by);
      else this.stretch(end, (end ? hi : lo) + by);
    };
    const done = new AbortController();
    const until = { signal: done.signal };
    window.addEventListener("pointermove", move, until);
    window.addEventListener("pointerup", () => done.abort(), until);
    window.addEventListener("pointercancel", () => done.abort(), until);
  },

  /* One end of the view to a time of the run; the other stays. */
  stretch(end, ns) {
    const [lo, hi] = this.viewed();
    this.unfold();
    const [first, last] = this.runBounds;
    const to = Math.min(Math.max(ns, first), last);
    this.show(...(end ? [lo, Math.max(to, lo + 1)] : [Math.min(to, hi - 1), hi]));
  },

  keyBox(event) {
    const [lo, hi] = this.viewed();
    const [first, last] = this.runBounds;
    const pages = { PageUp: -1, PageDown: 1, Home: (first - lo) / (hi - lo), End: (last - hi) / (hi - lo) };
    const share = event.key in MOVES ? MOVES[event.key] * PART : pages[event.key];
    if (share === undefined) return;
    event.preventDefault();
    this.unfold();
    this.show(lo + share * (hi - lo), hi + share * (hi - lo));
  },

  keyEnd(event, end) {
    const window = this.viewed();
    const [lo, hi] = window;
    const to = { Home: this.runBounds[0], End: this.runBounds[1] }[event.key];
    const by = MOVES[event.key];
    if (to === undefined && by === undefined) return;
    event.preventDefault();
    this.stretch(end, to === undefined ? window[end] + by * GROWS * (hi - lo) : to);
  },
});

/* Keys: every move of the timeline without a mouse. */
ddprof.HELP = [
  "W / S zoom",
  "A / D pan",
  "F all",
  "P critical path",
  "click a rank (or O) opens its lanes",
  "a closed group draws its latest rank, in brackets",
  "drag selects a range",
  "R selects what is in view of the lane",
  "M marks a moment",
  "arrows step through lanes and slices",
  "Enter details",
  "/ search, N next, Shift+N previous",
  "[ ] findings",
  ", . steps, G folds",
  "wheel scrolls, Ctrl+wheel zooms",
].join(" · ");

const ACTIONS = {
  w: (t) => t.zoom(0.6),
  s: (t) => t.zoom(1.6),
  a: (t) => t.pan(-0.2),
  d: (t) => t.pan(0.2),
  f: (t) => t.show(...t.bounds),
  p: (t) => t.togglePath(),
  r: (t) => t.chooseView(),
  m: (t) => t.addNote(),
  o: (t) => t.toggleRank(t.activeRow() || t.rows.find((r) => r.rank !== null && r.rank !== undefined)),
  "/": (t) => t.box.focus(),
  n: (t, back) => t.stepHit(back ? -1 : 1),
  ",": (t) => t.stepBy(-1),
  ".": (t) => t.stepBy(1),
  g: (t) => t.setFold(!t.folds),
  "]": (t) => t.jumpBy(1),
  "[": (t) => t.jumpBy(-1),
  arrowdown: (t) => t.step(1),
  arrowup: (t) => t.step(-1),
  arrowright: (t) => t.walk(1),
  arrowleft: (t) => t.walk(-1),
  enter: (t) => t.selected !== null && t.describe(t.selected, true),
  escape: (t) => t.release(),
};

Object.assign(ddprof.Timeline.prototype, {
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = ACTIONS[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action(this, event.shiftKey);
  },

  /* Nothing selected, searched or chosen. */
  release() {
    this.range = this.area = this.pinned = this.pointed = null;
    this.unfind();
    this.paint();
  },

  /* To the lane `by` lanes below the active one. */
  step(by) {
    const lanes = this.laneRows();
    const now = lanes.findIndex((r) => r.lane === this.activeLane);
    const row = lanes[Math.min(Math.max(now + by, 0), lanes.length - 1)];
    if (!row) return;
    this.activeLane = row.lane;
    this.bring(row);
    this.tell(`rank ${row.rank}, ${row.label}`);
    this.paint();
  },

  /* To the slice `by` slices after the selected one of the active lane. */
  walk(by) {
    const data = this.tile && this.tile.lanes.get(this.activeLane);
    if (!data || data.bins) {
      const merged = "this file holds the slices of some lanes merged.";
      this.tell(
        this.info.fixed
          ? `Choose a lane with the up and down keys; ${merged}`
          : "Choose a lane with the up and down keys and zoom in until it shows slices.",
      );
      return;
    }
    if (!data.row.length) return;
    const now = data.row.indexOf(this.selected);
    const next = now < 0 ? 0 : Math.min(Math.max(now + by, 0), data.row.length - 1);
    this.selected = data.row[next];
    const { name, category } = this.wordsOf(data, next);
    this.tell(`${name}, ${category}, ${ddprof.time(data.dur[next])}`);
    const start = this.tile.lo + data.start[next] * 1e3 - this.since(this.activeRow().rank);
    const half = (this.hi - this.lo) / 2;
    if (start < this.lo || start > this.hi) this.show(start - half, start + half);
    this.paint();
  },
});

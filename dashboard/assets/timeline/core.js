/* The timeline: what it is made of, how it begins and ends. The other files of this folder add what it can do. */
const BESIDE = 0.02; // of the run's length, shown before and after it

ddprof.Timeline = class {
  constructor(root, config, info) {
    Object.assign(this, { root, config, info, operators: false, expanded: "" });
    Object.assign(this, { focus: null, range: null, activeLane: undefined, arrows: [], path: [] });
    this.showPath = config.shows_path;
    this.notes = [];
    this.sequence = 0; // of requests for tiles: an answer that has been overtaken is dropped
    this.forget();
    this.kinds = new Set(config.kinds);
    this.open = new Set(config.open);
    this.spans = config.spans.map((s) => ({ ...s, lo: s.lo_us * 1e3, hi: s.hi_us * 1e3 }));
    const beside = (info.hi_ns - info.lo_ns) * BESIDE;
    this.bounds = [info.lo_ns - beside, info.hi_ns + beside];
    this.runBounds = this.bounds;
    [this.lo, this.hi] = this.bounds;
    this.arrange();
    this.build();
    this.layout();
    this.painter = new ddprof.Painter(this.canvas, this);
    this.painter.theme();
    this.listen();
    const view = config.from_us !== null && config.to_us !== null ? [config.from_us * 1e3, config.to_us * 1e3] : null;
    this.folds = config.fold && config.step !== null;
    if (config.step !== null) this.takeStep(config.step, view);
    if (view && !this.folds) this.show(...view);
    else if (config.focus !== null && this.spans[config.focus]) this.jump(config.focus);
    this.resize();
    this.readNotes();
  }

  /* What can wait until there is a picture: the server works these out of all ranks. */
  fetchRest() {
    this.fetchOverview();
    if (this.config.beside) return; // two runs have no path, and no lateness, in common
    this.fetchPath();
    this.fetchCounters();
    this.fetchArrangement();
  }

  /* Slices are numbered anew: what was known of them by number is void. */
  forget() {
    Object.assign(this, { tile: null, selected: null, pinned: null });
    this.unfind();
    this.pointTo(null);
  }

  /* The slice whose collective is drawn on all ranks: the one under the pointer, else the one that was chosen. */
  get details() {
    return this.pointed || this.pinned;
  }

  /* Whether only one step is shown, each rank from its own start of it (fold.js). */
  get isFolded() {
    return Boolean(this.folds && this.scrubbed);
  }

  /* Which timeline the server is asked about: the run, and the ranks whose operators were read. */
  source() {
    const { run, beside } = this.config;
    return { run, expanded: this.expanded, ...(beside ? { beside } : {}) };
  }

  laneAt(id) {
    this.lookUp();
    return this.byId.get(id);
  }

  lanesOn(rank) {
    this.lookUp();
    return this.byRank.get(rank);
  }

  /* The ranks whose lanes are known, in the order of the lanes. */
  ranks() {
    this.lookUp();
    return [...this.byRank.keys()];
  }

  /* Lanes by number and by rank, made anew when others are known. */
  lookUp() {
    if (this.known === this.info) return;
    this.known = this.info;
    this.byId = new Map(this.info.lanes.map((lane) => [lane.id, lane]));
    this.byRank = new Map();
    this.info.lanes.forEach((lane) => {
      if (!this.byRank.has(lane.rank)) this.byRank.set(lane.rank, []);
      this.byRank.get(lane.rank).push(lane);
    });
  }

  tell(words) {
    this.say.textContent = words;
  }

  /* Does what needs the server; a failure is told. */
  async attempt(action) {
    try {
      await action();
    } catch (error) {
      this.tell(String(error.message));
    }
  }

  close() {
    this.abort.abort();
  }
};

/* One step: shown, or folded, which is this step of all ranks under one another, each from its own start of it. Folded,
   times of the view count from there; `since(rank)` leads back to times of the run. */
const BESIDE = 0.02; // of a step's length, shown before and after it

Object.assign(ddprof.Timeline.prototype, {
  /* When the step of a rank begins and ends, in ns of the run; undefined where it has none. */
  stepOf(rank) {
    return this.scrubbed && this.scrubbed.of.get(rank);
  },

  foldedStep() {
    return this.isFolded ? this.scrubbed.number : null;
  },

  /* What is subtracted from a rank's times to draw them. */
  since(rank) {
    const step = this.isFolded && this.stepOf(rank);
    return step ? step[0] : 0;
  },

  /* Whether a moment of the run is not of the folded step of a row's rank. */
  isOutside(row, ns) {
    const step = this.isFolded && this.stepOf(row.rank);
    return this.isFolded && (!step || ns < step[0] || ns >= step[1]);
  },

  /* What of [lo, hi] ns of the run lies in the folded step of a rank; empty where it has none. */
  inStep(rank, lo, hi) {
    if (!this.isFolded) return [lo, hi];
    const [first, last] = this.stepOf(rank) || [hi, hi];
    return [Math.max(lo, first), Math.min(hi, last)];
  },

  /* The part of the run, in ns, that a view of some ranks covers. */
  runWindow(lo, hi, ranks) {
    const starts = this.isFolded ? ranks.filter((r) => this.stepOf(r)).map((r) => this.since(r)) : [];
    if (!starts.length) return [lo, hi];
    return [lo + starts.reduce((a, b) => Math.min(a, b)), hi + starts.reduce((a, b) => Math.max(a, b))];
  },

  /* Shows the step of a number; numbers beyond the last are the last. */
  takeStep(number, view) {
    if (!this.info.steps || !Number.isFinite(number)) return Promise.resolve();
    const wanted = Math.min(Math.max(Math.round(number), 0), this.info.steps - 1);
    const asked = (this.stepsAsked = (this.stepsAsked || 0) + 1);
    return this.attempt(async () => {
      const found = await ddprof.timelineData.step(this.source(), wanted);
      if (asked !== this.stepsAsked) return;
      const of = new Map(found.ranks.map(([rank, lo, hi]) => [rank, [lo * 1e3, hi * 1e3]]));
      this.scrubbed = { number: wanted, words: found.words, of };
      this.frameStep(view);
      this.tell(this.stepSaid());
    });
  },

  /* The ranks of the picture that have the step, in order. */
  stepRanks() {
    return this.ranks().filter((rank) => this.stepOf(rank));
  },

  frameStep(view) {
    const of = this.stepRanks().map((rank) => this.stepOf(rank));
    if (!of.length) return;
    const [first, last] = this.isFolded
      ? [0, of.reduce((most, [lo, hi]) => Math.max(most, hi - lo), 1)]
      : [of.reduce((a, s) => Math.min(a, s[0]), Infinity), of.reduce((a, s) => Math.max(a, s[1]), -Infinity)];
    const beside = (last - first) * BESIDE;
    const around = [first - beside, last + beside];
    this.bounds = this.isFolded ? around : this.runBounds;
    this.root.dataset.step = String(this.scrubbed.number);
    this.root.dataset.folded = String(this.isFolded);
    this.range = null;
    this.show(...(view || around));
    this.showStep();
  },

  /* Only this step of all ranks, aligned; or back to the run. Without a step: the first. */
  setFold(on) {
    this.folds = on;
    if (on && !this.scrubbed) return this.takeStep(0);
    if (this.scrubbed) this.frameStep();
    this.tell(this.scrubbed ? this.stepSaid() : "");
    return Promise.resolve();
  },

  /* Back to times of the run, for what leads elsewhere: a finding, a match of a search. */
  unfold() {
    if (!this.folds) return;
    this.folds = false;
    this.bounds = this.runBounds;
    this.root.dataset.folded = "false";
    this.range = null;
    this.showStep();
  },

  stepSaid() {
    const lengths = this.stepRanks().map((rank) => [rank, this.stepOf(rank)[1] - this.stepOf(rank)[0]]);
    if (!lengths.length) return `${this.scrubbed.words}: none of these ranks has it`;
    const [longest, most] = lengths.reduce((a, b) => (b[1] > a[1] ? b : a));
    const [shortest, least] = lengths.reduce((a, b) => (b[1] < a[1] ? b : a));
    const [long, short] = [most, least].map((ns) => ddprof.time(ns / 1e3));
    const spread = `longest on rank ${longest} (${long}), shortest on rank ${shortest} (${short})`;
    const aligned = this.isFolded ? ", each rank from its own start of it" : "";
    return `${this.scrubbed.words}${aligned}: ${long === short ? `${long} on every rank` : spread}`;
  },
});

/* Counter tracks below the lanes: clocks, power, memory, network and cores, whatever was recorded. */
const { tick, Timeline } = ddprof;
const TALL = 28; // px of a track
const HEAD = 16; // px of the heading

Object.assign(Timeline.prototype, {
  fetchCounters() {
    return this.attempt(async () => {
      this.counters = await ddprof.timelineData.counters(this.source());
      this.root.dataset.counters = String(this.counters.length);
      this.offerCounters();
      this.layout();
    });
  },

  /* The tick that shows the tracks, or once that there are none. */
  offerCounters() {
    if (!this.counters.length) {
      this.counterBox.title = "none of the traced time were recorded";
      return this.counterBox.replaceChildren("no counters");
    }
    const change = (isTicked) => {
      this.hidesCounters = !isTicked;
      this.layout();
    };
    return this.counterBox.replaceChildren(tick("counters", true, change));
  },

  placeCounters() {
    const known = new Set(this.ranks());
    const isShown = ({ rank }) => rank === null || (known.has(rank) && this.open.has(rank));
    const tracks = (this.counters || []).filter(isShown);
    if (!tracks.length || this.hidesCounters) return;
    this.place({ label: "counters", isCounters: true }, HEAD);
    tracks.forEach((track) => {
      const most = track.values.reduce((a, b) => Math.max(a, b), 0);
      this.place({ label: track.label, track, most }, TALL);
    });
  },
});

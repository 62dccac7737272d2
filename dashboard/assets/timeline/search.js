/* Search: what is found over all ranks, the next and the previous of it, and where it is in the view. */
const AROUND = 2; // lengths of a hit shown beside it
const LEAST_SHARE = 20; // or this part of the window, if that is more

Object.assign(ddprof.Timeline.prototype, {
  /* A search again for the same words goes to the next hit; with Shift to the one before. */
  seek(by) {
    if (this.found && this.found.count && this.box.value === this.found.typed) return this.stepHit(by);
    return this.find();
  },

  unfind() {
    this.found = null;
    this.asked = (this.asked || 0) + 1; // an answer under way is for words that are no longer there
    if (this.said) this.said.textContent = "";
    if (this.foundBar) this.foundBar.hidden = true;
  },

  find() {
    this.unfind();
    const typed = this.box.value;
    const text = typed.trim();
    const asked = this.asked;
    this.paint();
    if (!text) return this.tell("");
    return this.attempt(async () => {
      const found = await this.page(text, 0);
      if (asked !== this.asked) return;
      this.found = { ...found, text, typed, at: -1, view: null };
      this.tell(found.said);
      this.said.textContent = found.count ? `${found.count.toLocaleString("en")} hits` : "none";
      this.foundBar.hidden = found.rank !== null;
      if (found.rank !== null) this.showRank(found.rank);
      if (found.count) await this.stepHit(1);
      this.paint();
    });
  },

  page(text, first) {
    return ddprof.timelineData.search(this.source(), text, this.config.ranks, first);
  },

  /* To the hit `by` hits after the present one; after the last comes the first. Hits come in pages. */
  stepHit(by) {
    const found = this.found;
    if (!found || !found.count) return this.tell("Nothing is searched for: / leads to the field.");
    const at = (Math.max(found.at, by > 0 ? -1 : 0) + by + found.count) % found.count;
    return this.attempt(async () => {
      if (at < found.first || at >= found.first + found.hits.length) {
        const { first, hits } = await this.page(found.text, at - (at % Math.max(1, found.hits.length)));
        if (found !== this.found) return;
        Object.assign(found, { first, hits });
      }
      found.at = at;
      this.showHit(found.hits[at - found.first]);
    });
  },

  /* Opens the hit's rank and lane, and brings it into view. */
  showHit(hit) {
    const lane = this.laneAt(hit.lane);
    if (!lane) return this.tell(`The lane of this hit, on rank ${hit.rank}, is not in the picture.`);
    this.kinds.add(lane.kind);
    this.open.add(lane.rank);
    this.layout();
    this.unfold();
    this.activeLane = hit.lane;
    this.selected = hit.row;
    const start = hit.start_us * 1e3;
    const length = hit.dur_us * 1e3;
    const around = Math.max(length * AROUND, (this.hi - this.lo) / LEAST_SHARE);
    this.show(start - around, start + length + around);
    this.bring(this.rows.find((r) => r.lane === hit.lane));
    const { at, count, said } = this.found;
    const number = `${(at + 1).toLocaleString("en")} of ${count.toLocaleString("en")}`;
    this.said.textContent = number;
    this.tell(`${number}: ${hit.name}, rank ${lane.rank}, ${lane.label}, ${ddprof.time(hit.dur_us)}. All: ${said}`);
  },

  showRank(rank) {
    this.open.add(rank);
    this.layout();
    this.refetch();
    this.reveal(rank);
  },

  /* Where hits are in the tile that came: which of its slices, and which bins of merged lanes and closed ranks. */
  async placeHits() {
    const { found, tile } = this;
    if (!found || !found.count || !tile) return;
    const closed = this.visibleRows().filter((row) => row.isClosed);
    const ranks = closed.flatMap((row) => row.group.ranks).sort((a, b) => a - b);
    const view = await ddprof.timelineData.places(this.source(), found.text, tile, ranks);
    if (found !== this.found || tile !== this.tile) return;
    found.view = { ...view, rows: new Set(view.rows), lo: tile.lo, hi: tile.hi, bins: tile.bins };
    this.root.dataset.placed = found.text;
    this.paint();
  },

  /* Whether a search dims a slice, by its row. Where time goes and steps are what other lanes are read against. */
  dims(lane, row) {
    const view = this.found && this.found.view;
    return Boolean(view) && !view.rows.has(row) && !["causes", "steps"].includes(this.laneAt(lane).kind);
  },
});

/* What the timeline says below the picture: a slice, a lane as a table. */
const { element, time, Timeline } = ddprof;
const MOST_LISTED = 500;

/* A collective on every rank that takes part. */
function members(details) {
  const rows = details.members.map((m) => [
    `rank ${m.rank}${m.late ? " (last to arrive)" : ""}`,
    ...[m.start_us, m.ready_us - m.start_us, m.end_us - m.ready_us].map(ddprof.inUs),
  ]);
  const heads = ["rank", "arrives (µs)", "waits (µs)", "moves data (µs)"];
  return rows.length ? [ddprof.sheet("The same collective on every rank", heads, rows, 1)] : [];
}

Object.assign(Timeline.prototype, {
  /* A slice beside the pointer, and `pinned` below the picture, where it stays. */
  async describe(row, pinned) {
    const details = await ddprof.timelineData.slice(this.source(), row);
    if (!pinned && row !== this.hover) return;
    const { name, category, rank, lane, dur_us, start_us, facts } = details;
    const lines = [name, `${category} · rank ${rank} · ${lane}`, `${time(dur_us)} at ${time(start_us)}`, ...facts];
    this.tip.replaceChildren(...lines.map((words) => element("div", words)));
    this.pointed = details;
    if (pinned) {
      this.pinned = details;
      const [head, ...more] = lines;
      this.panel.replaceChildren(
        element("h3", head, { "aria-level": "2" }),
        ...more.map((words) => element("div", words)),
        ...members(details),
      );
      this.tell(lines.join(". "));
    }
    this.paint();
  },

  binWords(bin) {
    const more = this.info.fixed ? "This file holds the slices of the lane merged." : "Zoom in to see slices.";
    return `${Math.round(bin.share * 100)} % busy, mostly ${this.info.categories[bin.category].words}. ${more}`;
  },

  /* The slices of the active lane that are in view. */
  list() {
    const data = this.tile && this.tile.lanes.get(this.activeLane);
    const row = this.activeRow();
    if (!row) {
      this.tell("Choose a lane first: click one, or use the arrow keys.");
      return;
    }
    if (!data || data.bins) {
      const many = "Too many slices in view to list: zoom in first.";
      this.tell(this.info.fixed ? "This file holds the slices of this lane merged." : many);
      return;
    }
    const lines = Array.from(data.start.subarray(0, MOST_LISTED), (start, i) => {
      const { name, category } = this.wordsOf(data, i);
      return [name, category, ddprof.inUs(start + this.tile.lo / 1e3), ddprof.inUs(data.dur[i])];
    });
    const some = data.start.length > MOST_LISTED ? `, the first ${MOST_LISTED}` : "";
    const title = `rank ${row.rank} · ${row.label}: ${data.start.length} slices${some}`;
    this.panel.replaceChildren(ddprof.sheet(title, ["name", "what", "starts (µs)", "takes (µs)"], lines, 2));
  },

  /* Name and category of a lane's slice. */
  wordsOf(data, place) {
    return { name: this.tile.names[data.name[place]], category: this.info.categories[data.category[place]].words };
  },
});

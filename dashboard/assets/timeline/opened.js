/* What is open: ranks whose lanes are all shown, kinds of lanes, and operators of the host. */
const MOST_OPERATORS = 4; // ranks whose operators are read: each is a trace

Object.assign(ddprof.Timeline.prototype, {
  toggleRank(row) {
    if (row && row.group) return this.toggleGroup(row.group);
    if (!row || row.rank === undefined || row.rank === null) return undefined;
    const opens = !this.open.has(row.rank);
    if (opens) this.open.add(row.rank);
    else this.open.delete(row.rank);
    this.tell(`rank ${row.rank} ${opens ? "opened" : "closed"}`);
    this.layout();
    this.refetch();
    return this.operators ? this.expand() : undefined;
  },

  openAll() {
    const ranks = this.info.lanes.map((l) => l.rank);
    const all = ranks.every((r) => this.open.has(r));
    this.open = new Set(all ? [] : ranks);
    this.layout();
    this.refetch();
  },

  toggleKind(kind, on) {
    if (on) this.kinds.add(kind);
    else this.kinds.delete(kind);
    this.layout();
    this.refetch();
  },

  /* Operators are read from the traces of the open ranks again; lanes and slices are numbered anew. */
  async expand() {
    if (this.operators && !this.open.size) this.open.add(this.info.lanes[0].rank);
    const wanted = this.operators ? [...this.open].sort((a, b) => a - b).slice(0, MOST_OPERATORS) : [];
    const expanded = wanted.join(",");
    const ranks = wanted.join(", ");
    if (expanded === this.expanded) {
      this.layout();
      return;
    }
    this.tell(ranks ? `reading operators of rank ${ranks} …` : "");
    await this.attempt(async () => {
      const info = await ddprof.timelineData.lanes({ run: this.config.run, expanded }, this.config.ranks);
      Object.assign(this, { expanded, info });
      this.forget();
      const some = this.operators && this.open.size > MOST_OPERATORS;
      const more = some ? ` of ${this.open.size} open ranks, the first ${MOST_OPERATORS}` : "";
      this.tell(ranks ? `operators of rank ${ranks}${more}` : "");
      this.layout();
      this.refetch();
    });
  },
});

/* Which ranks stand together, and in which order: groups by host or role, by number or by lateness. */
const VERY_MANY = 100; // ranks: above, groups are closed until they are opened

Object.assign(ddprof.Timeline.prototype, {
  /* What the link asks for; else by host, where hosts hold more than one rank. */
  arrange() {
    const { by, order } = this.config;
    this.closes = this.ranks().length > VERY_MANY; // whether groups are closed before anybody toggles them
    this.byAtFirst = this.hostGroups().length > 1 && !this.isAlone ? "host" : this.closes ? "block" : "none";
    this.by = by || this.byAtFirst;
    this.order = order || "rank";
    this.lateness = new Map();
    this.groupings = [];
    this.toggled = new Set();
  },

  /* What must be asked for: roles of groups and lateness. */
  fetchArrangement() {
    return this.attempt(async () => {
      const found = await ddprof.timelineData.arrangement(this.source());
      this.lateness = new Map(found.lateness_us);
      this.groupings = found.groupings;
      this.offerOrders();
      this.root.dataset.arranged = "true";
      this.layout();
      this.refetch();
    });
  },

  hostGroups() {
    const hosts = new Map();
    this.ranks().forEach((rank) => {
      const host = this.lanesOn(rank)[0].host;
      if (!hosts.has(host)) hosts.set(host, []);
      hosts.get(host).push(rank);
    });
    this.isAlone = hosts.size > 1 && hosts.size === this.ranks().length; // every rank on a host of its own
    const count = (ranks) => `${ranks.length} rank${ranks.length === 1 ? "" : "s"}`;
    return [...hosts].map(([host, ranks]) => [`host ${host || "not recorded"} · ${count(ranks)}`, ranks]);
  },

  /* Ranks of consecutive numbers: where nothing else divides very many of them. */
  blocks() {
    const ranks = this.sorted(this.ranks(), "rank");
    const size = 2 ** Math.round(Math.log2(Math.sqrt(ranks.length)));
    const starts = Array.from({ length: Math.ceil(ranks.length / size) }, (_, i) => i * size);
    return starts.map((from) => {
      const of = ranks.slice(from, from + size);
      return [`ranks ${of[0]}–${of[of.length - 1]}`, of];
    });
  },

  parts() {
    if (this.by === "host") return this.hostGroups();
    if (this.by === "block") return this.blocks();
    const known = this.groupings.find((grouping) => grouping.id === this.by);
    return (known && known.groups) || [];
  },

  /* Groups in drawing order: {key, label, ranks}; without grouping one, whose key is null. */
  groups() {
    const ranks = this.ranks();
    const shown = new Set(ranks);
    const found = this.parts().map(([label, of]) => this.group(label, of.filter((rank) => shown.has(rank))));
    const grouped = new Set(found.flatMap((group) => group.ranks));
    const rest = ranks.filter((rank) => !grouped.has(rank));
    if (!found.length) return [{ key: null, label: "", ranks: this.sorted(rest, this.order) }];
    if (rest.length) found.push(this.group("in none of these groups", rest));
    const used = found.filter((group) => group.ranks.length);
    return this.order === "late" ? used.sort((a, b) => this.lateOf(b.ranks[0]) - this.lateOf(a.ranks[0])) : used;
  },

  group(label, ranks) {
    return { key: `${this.by}:${label}`, label, ranks: this.sorted(ranks, this.order) };
  },

  lateOf(rank) {
    return this.lateness.has(rank) ? this.lateness.get(rank) : -Infinity;
  },

  sorted(ranks, order) {
    const late = (a, b) => this.lateOf(b) - this.lateOf(a) || a - b;
    return [...ranks].sort(order === "late" ? late : (a, b) => a - b);
  },

  /* The rank that stands for a closed group: the one that comes latest. */
  latestOf(ranks) {
    return ranks.reduce((latest, rank) => (this.lateOf(rank) > this.lateOf(latest) ? rank : latest), ranks[0]);
  },

  lateWords(rank) {
    const us = this.lateness.get(rank);
    return this.order === "late" && us !== undefined ? ` ${us < 0 ? "−" : "+"}${ddprof.time(Math.abs(us))}` : "";
  },

  /* A group with an open rank is open: what leads to a rank opens it. */
  isGroupClosed(group) {
    return this.closes !== this.toggled.has(group.key) && !group.ranks.some((rank) => this.open.has(rank));
  },

  toggleGroup(group) {
    const closes = !this.isGroupClosed(group);
    if (closes === this.closes) this.toggled.delete(group.key);
    else this.toggled.add(group.key);
    if (closes) group.ranks.forEach((rank) => this.open.delete(rank));
    const closed = `closed: drawn is the latest of its ranks, ${this.latestOf(group.ranks)}`;
    this.tell(`${group.label} ${closes ? closed : "opened"}`);
    this.layout();
    this.refetch();
  },
});

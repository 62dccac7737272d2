/* The timeline: state, keys, mouse. Rows: timeline_rows.js, what is said of a slice or a range: timeline_panel.js, drawing:
   timeline_draw.js, paper: timeline_paper.js, data: timeline_data.js. */
(function () {
  "use strict";
  const ddprof = (window.ddprof = window.ddprof || {});
  const FETCH_AFTER_MS = 80, MARGIN = 0.25, LEAST_NS = 200;
  const HELP = "W / S zoom · A / D pan · F all · P critical path · click a rank (or O) opens its lanes · drag selects a range · arrows step through lanes and slices · Enter details · / search, N next · [ ] findings · wheel scrolls, Ctrl+wheel zooms";

  function element(kind, text, attributes) {
    const node = document.createElement(kind);
    if (text) node.textContent = text;
    Object.entries(attributes || {}).forEach(([key, value]) => node.setAttribute(key, value));
    return node;
  }

  class Timeline {
    constructor(root, config, info) {
      Object.assign(this, { root, config, info, tile: null, spans: [], arrows: [], details: null, pinned: null, focus: null, range: null });
      Object.assign(this, { selected: null, activeLane: undefined, marked: null, hits: [], hit: -1, hover: null, pending: 0, sequence: 0 });
      Object.assign(this, { path: [], showPath: true, operators: false });
      this.kinds = new Set(config.kinds);
      this.open = new Set(config.open);
      this.spans = config.spans.map((s) => ({ ...s, lo: s.lo_us * 1e3, hi: s.hi_us * 1e3 }));
      const whole = (info.hi_ns - info.lo_ns) * 0.02;
      this.bounds = [info.lo_ns - whole, info.hi_ns + whole];
      [this.lo, this.hi] = this.bounds;
      this.build();
      this.layout();
      this.painter = new ddprof.Painter(this.canvas, this);
      this.painter.theme();
      this.events();
      if (config.from_us !== null && config.to_us !== null) this.show(config.from_us * 1e3, config.to_us * 1e3);
      else if (config.focus !== null && this.spans[config.focus]) this.jump(config.focus);
      this.resize();
      this.fetchPath();
    }

    build() {
      const bar = element("div", "", { class: "tl-bar" });
      this.box = element("input", "", { type: "search", placeholder: "Find a kernel or range", "aria-label": "Find a kernel or range" });
      this.say = element("span", "", { class: "quiet", "aria-live": "polite", id: "timeline-say" });
      const button = (text, action, title) => { const b = element("button", text, { type: "button", title: title || text }); b.addEventListener("click", action); bar.append(b); return b; };
      bar.append(this.box);
      button("−", () => this.zoom(1.6), "Zoom out (S)");
      button("+", () => this.zoom(0.6), "Zoom in (W)");
      button("All", () => this.show(...this.bounds), "Whole run (F)");
      const pressed = (text, title, get, set) => { const b = button(text, () => { set(); b.setAttribute("aria-pressed", String(get())); }, title); b.setAttribute("aria-pressed", String(get())); };
      pressed("Who waits for whom", "Arrows from the late rank to those that wait", () => Boolean(this.showArrows), () => this.toggleArrows());
      pressed("Critical path", "The chain of work that makes the run as long as it is (P)", () => this.showPath, () => { this.showPath = !this.showPath; this.paint(); });
      if (this.spans.length) button("Next finding", () => this.jump(this.spans.indexOf(this.focus) + 1), "Next finding ( ] )");
      button("List lane", () => this.list(), "Slices of the active lane in view, as a table");
      button("Open all", () => this.openAll(), "Lanes of every rank, or one line per rank (O)");
      const box = (words, checked, change) => {
        const label = element("label", " " + words), tick = element("input", "", { type: "checkbox" });
        tick.checked = checked;
        tick.addEventListener("change", () => change(tick.checked));
        label.prepend(tick);
        bar.append(label);
      };
      this.info.kinds.forEach(([kind, words]) => box(words, this.kinds.has(kind), (on) => { on ? this.kinds.add(kind) : this.kinds.delete(kind); this.layout(); this.refetch(); }));
      if (!this.info.fixed) box("operators", false, (on) => { this.operators = on; this.expand(); });
      this.scroller = element("div", "", { class: "tl-scroll" });
      this.canvas = element("canvas", "", { tabindex: "0", role: "img", "aria-describedby": "timeline-say", "aria-label": "Timeline of " + this.info.lanes.length + " lanes. " + HELP });
      this.spacer = element("div");
      this.scroller.append(this.canvas, this.spacer);
      this.tip = element("div", "", { class: "tl-tip", hidden: "" });
      this.panel = element("div", "", { class: "tl-panel" });
      this.sheets = element("div", "", { class: "tl-paper" });
      this.root.replaceChildren(bar, this.say, this.scroller, this.tip, element("p", HELP, { class: "quiet" }), this.sheets, this.panel);
    }

    resize() {
      this.ratio = window.devicePixelRatio || 1;
      this.width = this.scroller.clientWidth;
      const room = window.innerHeight - (this.scroller.getBoundingClientRect().top + window.scrollY) - 64;
      this.height = Math.min(Math.max(260, room), this.tall + ddprof.AXIS + 4);
      this.scroller.style.height = this.height + "px";
      this.spacer.style.height = Math.max(0, this.tall + ddprof.AXIS - this.height) + "px";
      this.canvas.width = this.width * this.ratio;
      this.canvas.height = this.height * this.ratio;
      this.canvas.style.height = this.height + "px";
      this.refetch();
    }

    searches(lane) { return !["causes", "steps"].includes(this.info.lanes.find((l) => l.id === lane).kind); }

    show(lo, hi) {
      const least = Math.max(LEAST_NS, hi - lo), most = this.bounds[1] - this.bounds[0];
      const width = Math.min(least, most), middle = (lo + hi) / 2;
      this.lo = Math.min(Math.max(middle - width / 2, this.bounds[0]), this.bounds[1] - width);
      this.hi = this.lo + width;
      this.refetch();
      clearTimeout(this.linked);
      this.linked = setTimeout(() => this.link(), 300);
    }

    /* The view in the address: a copied link shows a colleague the same picture. */
    link() {
      if (this.info.fixed) return;
      const address = new URL(window.location.href);
      address.searchParams.set("from", (this.lo / 1e3).toFixed(1));
      address.searchParams.set("to", (this.hi / 1e3).toFixed(1));
      window.history.replaceState(window.history.state, "", address);
    }

    zoom(factor, at) {
      const pivot = at === undefined ? (this.lo + this.hi) / 2 : at;
      this.show(pivot - (pivot - this.lo) * factor, pivot + (this.hi - pivot) * factor);
    }

    pan(share) { const by = (this.hi - this.lo) * share; this.show(this.lo + by, this.hi + by); }

    paint() {
      if (this.frame) return;
      this.frame = requestAnimationFrame(() => { this.frame = 0; if (this.painter) this.painter.paint(); });
    }

    /* The old tile is drawn stretched at once; the new one comes when the view has been still for a moment. */
    refetch() {
      this.paint();
      if (!this.painter) return;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.fetch(), this.tile ? FETCH_AFTER_MS : 0);
    }

    async fetch() {
      const lanes = this.visibleRows().filter((r) => r.lane !== undefined).map((r) => r.lane);
      const margin = (this.hi - this.lo) * MARGIN, sequence = ++this.sequence;
      const bins = Math.round((this.width - ddprof.GUTTER) * (1 + 2 * MARGIN));
      const started = performance.now();
      try {
        const tile = await ddprof.timelineData.tile(this.source(), lanes, this.lo - margin, this.hi + margin, Math.max(1, bins));
        if (sequence !== this.sequence) return;
        this.tile = tile;
        this.painter.paint();
        this.root.dataset.fetchMs = (performance.now() - started).toFixed(1);
        if (!this.root.dataset.tiles) this.root.dataset.pictureMs = performance.now().toFixed(0);
        this.root.dataset.tiles = String(Number(this.root.dataset.tiles || 0) + 1);
      } catch (error) { this.say.textContent = String(error.message); }
    }

    jump(number) {
      if (!this.spans.length) return;
      this.focus = this.spans[(number + this.spans.length) % this.spans.length];
      const around = Math.max((this.focus.hi - this.focus.lo) * 0.6, 2000);
      const shown = this.focus.rank === null ? this.focus.culprits : [this.focus.rank, ...this.focus.culprits];
      shown.filter((rank) => this.info.lanes.some((l) => l.rank === rank)).forEach((rank) => this.open.add(rank));
      if (shown.length) this.layout();
      this.show(this.focus.lo - around, this.focus.hi + around);
      this.reveal(this.focus.rank);
      this.say.textContent = this.focus.text;
    }

    reveal(rank) {
      const row = this.rows.find((r) => r.rank === rank);
      if (row && (row.top < this.scroller.scrollTop || row.top > this.scroller.scrollTop + this.height - 120)) this.scroller.scrollTop = Math.max(0, row.top - this.height / 3);
    }

    /* Which timeline the server is asked about: the run, and the ranks whose operators were read. */
    source() { return { run: this.config.run, expanded: this.expanded || "" }; }

    async fetchPath() {
      try {
        const found = await ddprof.timelineData.path(this.source());
        this.path = found.map(([rank, lo, hi]) => ({ rank, lo: lo * 1e3, hi: hi * 1e3 }));
        this.root.dataset.path = String(this.path.length);
        this.paint();
      } catch (error) { this.say.textContent = String(error.message); }
    }

    async toggleArrows() {
      this.showArrows = !this.showArrows;
      this.arrows = [];
      if (this.showArrows) {
        const waits = await ddprof.timelineData.waits(this.source(), this.lo, this.hi);
        if (!this.showArrows) return;
        this.arrows = waits.map((w) => ({ ...w, start: w.start_us * 1e3, ready: w.ready_us * 1e3 }));
        const worst = waits[0];
        this.say.textContent = worst ? `${waits.length} waits; the longest: rank ${worst.victim} waits ${ddprof.time(worst.ready_us - worst.start_us)} for rank ${worst.culprit}` : "nobody waits for anybody here";
      }
      this.paint();
    }

    async find() {
      const text = this.box.value.trim();
      this.marked = null;
      this.hits = [];
      if (text) {
        const found = await ddprof.timelineData.search(this.source(), text);
        this.marked = new Set(found.names);
        this.hits = found.hits;
        this.hit = -1;
        this.say.textContent = `${found.count} slices, ${ddprof.time(found.total_us)} in all`;
        if (found.count) this.nextHit();
      }
      this.paint();
    }

    nextHit() {
      if (!this.hits.length) return;
      this.hit = (this.hit + 1) % this.hits.length;
      const hit = this.hits[this.hit], lane = this.info.lanes.find((l) => l.id === hit.lane);
      const around = Math.max(hit.dur_us * 1e3 * 2, (this.hi - this.lo) / 20);
      this.activeLane = hit.lane;
      this.show(hit.start_us * 1e3 - around, (hit.start_us + hit.dur_us) * 1e3 + around);
      if (lane) this.reveal(lane.rank);
    }

    /* What is under a point of the canvas. */
    at(x, y) {
      const row = this.visibleRows().find((r) => y >= r.y && y < r.y + r.height);
      const data = row && row.lane !== undefined && this.tile && this.tile.lanes.get(row.lane);
      if (!data || x < ddprof.GUTTER) return { row };
      const ns = this.lo + ((x - ddprof.GUTTER) / (this.width - ddprof.GUTTER)) * (this.hi - this.lo);
      const us = (ns - this.tile.lo) / 1e3;
      if (data.bins) {
        const bin = Math.floor(((ns - this.tile.lo) / (this.tile.hi - this.tile.lo)) * this.tile.bins);
        return { row, ns, bin: data.share[bin] ? { category: data.category[bin], share: data.share[bin] / 255 } : null };
      }
      const slack = ((this.hi - this.lo) / (this.width - ddprof.GUTTER) / 1e3) * 1.5;
      for (let i = 0; i < data.start.length; i++)
        if (us >= data.start[i] - slack && us < data.start[i] + Math.max(data.dur[i], slack)) return { row, ns, data, slice: i };
      return { row, ns };
    }

    point(event) {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }

    hoverOver(event) {
      const [x, y] = this.point(event), found = this.at(x, y);
      const key = found.data ? found.data.row[found.slice] : null;
      this.tip.hidden = !found.data && !found.bin;
      this.tip.style.left = Math.min(x + 14, this.width - 360) + "px";
      this.tip.style.top = this.canvas.offsetTop + y + 18 + this.scroller.offsetTop + "px";
      if (found.bin) this.tip.textContent = `${Math.round(found.bin.share * 100)} % busy, mostly ${this.info.categories[found.bin.category].words}. ${this.info.fixed ? "This file holds the slices of the lane merged." : "Zoom in to see slices."}`;
      if (key === this.hover) return;
      this.hover = key;
      this.details = this.pinned;
      clearTimeout(this.asking);
      if (found.data) {
        this.tip.textContent = (this.tile.names[found.data.name[found.slice]] || "") + " · " + ddprof.time(found.data.dur[found.slice]);
        this.asking = setTimeout(() => this.describe(key, false), 120);
      }
      this.paint();
    }

    events() {
      const canvas = this.canvas;
      canvas.addEventListener("keydown", (e) => this.key(e));
      canvas.addEventListener("mousemove", (e) => (this.drag ? this.dragging(e) : this.hoverOver(e)));
      canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; this.hover = null; this.details = this.pinned; this.paint(); });
      canvas.addEventListener("mousedown", (e) => { const [x, y] = this.point(e); if (x > ddprof.GUTTER) this.drag = x; else this.toggleRank(this.at(x, y).row); });
      window.addEventListener("mouseup", (e) => this.drop(e), { signal: this.closing() });
      window.addEventListener("resize", () => this.resize(), { signal: this.abort.signal });
      this.scroller.addEventListener("scroll", () => this.refetch());
      canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
      this.box.addEventListener("keydown", (e) => { if (e.key === "Enter") { this.hits.length && this.box.value === this.sought ? this.nextHit() : this.find(); this.sought = this.box.value; } });
      new MutationObserver(() => { this.painter.theme(); this.painter.paint(); }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    }

    closing() { this.abort = new AbortController(); return this.abort.signal; }

    close() { this.abort.abort(); }

    ns(x) { return this.lo + ((x - ddprof.GUTTER) / (this.width - ddprof.GUTTER)) * (this.hi - this.lo); }

    dragging(event) {
      const [x] = this.point(event);
      if (Math.abs(x - this.drag) < 4) return;
      this.range = [this.ns(Math.min(x, this.drag)), this.ns(Math.max(x, this.drag))];
      this.paint();
    }

    drop(event) {
      if (this.drag === undefined || this.drag === null) return;
      const [x, y] = this.point(event), moved = Math.abs(x - this.drag) >= 4;
      this.drag = null;
      if (moved && this.range) { this.statistics(); return; }
      this.range = null;
      const found = this.at(x, y);
      if (found.row) this.activeLane = found.row.lane;
      if (found.data) { this.selected = found.data.row[found.slice]; this.describe(this.selected, true); }
      this.paint();
    }

    wheel(event) {
      const [x] = this.point(event);
      if (event.ctrlKey || event.metaKey) { event.preventDefault(); this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.ns(x)); }
      else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); this.pan((event.deltaX || event.deltaY) / 1500); }
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const actions = {
        w: () => this.zoom(0.6), s: () => this.zoom(1.6), a: () => this.pan(-0.2), d: () => this.pan(0.2), f: () => this.show(...this.bounds),
        "/": () => this.box.focus(), n: () => this.nextHit(), p: () => { this.showPath = !this.showPath; this.paint(); }, o: () => this.toggleRank(this.rows.find((r) => r.lane === this.activeLane) || this.rows.find((r) => r.rank !== null && r.rank !== undefined)),
        "]": () => this.jump(this.spans.indexOf(this.focus) + 1), "[": () => this.jump(this.spans.indexOf(this.focus) - 1),
        arrowdown: () => this.step(1), arrowup: () => this.step(-1), arrowright: () => this.walk(1), arrowleft: () => this.walk(-1),
        enter: () => this.selected !== null && this.describe(this.selected, true),
        escape: () => { this.range = null; this.marked = null; this.details = this.pinned = null; this.paint(); },
      };
      const action = actions[event.key.toLowerCase()];
      if (action) { event.preventDefault(); action(); }
    }

    step(by) {
      const lanes = this.rows.filter((r) => r.lane !== undefined), now = lanes.findIndex((r) => r.lane === this.activeLane);
      const row = lanes[Math.min(Math.max(now + by, 0), lanes.length - 1)];
      if (!row) return;
      this.activeLane = row.lane;
      const y = row.top + ddprof.AXIS - this.scroller.scrollTop;
      if (y < ddprof.AXIS || y + row.height > this.height) this.scroller.scrollTop = Math.max(0, row.top - this.height / 2);
      this.say.textContent = `rank ${row.rank}, ${row.label}`;
      this.paint();
    }

    walk(by) {
      const data = this.tile && this.tile.lanes.get(this.activeLane);
      if (!data || data.bins) { this.say.textContent = this.info.fixed ? "Choose a lane with the up and down keys; this file holds the slices of some lanes merged." : "Choose a lane with the up and down keys and zoom in until it shows slices."; return; }
      const now = data.row.indexOf(this.selected), next = now < 0 ? 0 : Math.min(Math.max(now + by, 0), data.row.length - 1);
      if (!data.row.length) return;
      this.selected = data.row[next];
      this.say.textContent = `${this.tile.names[data.name[next]]}, ${this.info.categories[data.category[next]].words}, ${ddprof.time(data.dur[next])}`;
      const start = this.tile.lo + data.start[next] * 1e3;
      if (start < this.lo || start > this.hi) this.show(start - (this.hi - this.lo) / 2, start + (this.hi - this.lo) / 2);
      this.paint();
    }
  }

  ddprof.Timeline = Timeline;
  ddprof.element = element;

  /* Called by the page whenever its configuration is put into the document. */
  async function mount(config) {
    if (!config) return "";
    const root = document.getElementById("timeline-root");
    if (!root) return "";
    if (ddprof.timeline) ddprof.timeline.close();
    try {
      const info = await ddprof.timelineData.lanes({ run: config.run, expanded: "" }, config.ranks);
      ddprof.timeline = new Timeline(root, config, info);
    } catch (error) { root.replaceChildren(element("p", String(error.message), { role: "alert" })); }
    return "";
  }

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.ddprof = Object.assign(window.dash_clientside.ddprof || {}, { mount });
})();

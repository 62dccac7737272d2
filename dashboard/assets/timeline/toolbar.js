/* The timeline's elements: the bar with its buttons, the canvas in what scrolls, and the places of words. */
const { element, HELP, tick, Timeline } = ddprof;

function button(text, title, action, key) {
  const shortcut = key ? { "aria-keyshortcuts": key, "data-key": key } : {};
  return ddprof.button(text, { title, ...shortcut }, action);
}

function legendEntry([color, words]) {
  const swatch = element("span", "", { class: "tl-swatch" });
  swatch.style.background = `var(--${color})`;
  return element("li", [swatch, " " + words]);
}

const part = (content, kind) => element("span", content, { class: `tl-part ${kind || ""}`.trim() });

Object.assign(Timeline.prototype, {
  build() {
    const said = "timeline-say";
    this.say = element("span", "", { "aria-live": "polite", id: said });
    const words = `Timeline of ${this.info.lanes.length} lanes. ${HELP}`;
    const spoken = { role: "img", "aria-describedby": said, "aria-label": words };
    this.canvas = element("canvas", "", { tabindex: "0", ...spoken });
    this.spacer = element("div");
    this.scroller = element("div", [this.canvas, this.spacer], { class: "tl-scroll" });
    this.tip = element("div", "", { class: "tl-tip", hidden: "" });
    this.panel = element("div", "", { class: "tl-panel" });
    this.sheets = element("div", "", { class: "tl-paper" });
    const help = element("details", [element("summary", "Keys and mouse"), element("p", HELP)], { class: "tl-help" });
    const legend = element("ul", this.config.legend.map(legendEntry), { class: "tl-legend" });
    const status = element("p", this.say, { class: "quiet tl-say" });
    const bar = this.buildBar(this.searchPart(), this.toolParts(), this.toolSections());
    const above = [...bar, this.buildMap(), this.scroller, this.tip];
    this.root.replaceChildren(...above, legend, status, this.buildNotes(), help);
    this.root.append(this.sheets, this.panel);
  },

  searchPart() {
    const find = "Search: kernel, operator, module, collective, or rank 7, step 12, or several of them";
    this.box = element("input", "", { type: "search", "aria-label": find, title: find, maxlength: 200 });
    this.box.placeholder = "Search (/): all_reduce rank 5";
    this.said = element("output", "", { class: "quiet", "aria-label": "Hits of the search" });
    const found = [button("‹", "Previous hit (Shift+N)", () => this.stepHit(-1)), this.said];
    found.push(button("›", "Next hit (N)", () => this.stepHit(1)));
    this.foundBar = element("span", found, { class: "tl-found", hidden: "" });
    return element("span", [this.box, this.foundBar], { class: "tl-search" });
  },

  /* What stands in the bar where it has room, and in which turn each part leaves it: the last is kept longest. */
  toolParts() {
    const zoom = part([
      button("−", "Zoom out (S)", () => this.zoom(1.6)),
      button("+", "Zoom in (W)", () => this.zoom(0.6)),
      button("All", "Whole run (F)", () => this.show(...this.bounds)),
    ]);
    const next = part(button("Next finding", "Next finding ( ] )", () => this.jumpBy(1)));
    const [steps, slider] = this.stepParts(part);
    const paths = this.config.beside ? null : part(this.pathButtons()); // of one run
    const inTurn = [zoom, steps, slider, this.spans.length ? next : null, paths];
    const leaves = [slider, paths, this.spans.length ? next : null, steps, zoom];
    return { inTurn: inTurn.filter(Boolean), leaves: leaves.filter(Boolean) };
  },

  pathButtons() {
    const arrows = "Who waits for whom: arrows from the late rank to those that wait";
    const chain = "The chain of work that makes the run as long as it is (P)";
    const waits = button("Waits", arrows, () => this.attempt(() => this.toggleArrows()));
    const path = button("Critical path", chain, () => this.togglePath());
    this.showPressed = () => {
      waits.setAttribute("aria-pressed", String(Boolean(this.showArrows)));
      path.setAttribute("aria-pressed", String(this.showPath));
    };
    this.showPressed();
    return [path, waits];
  },

  /* What is always behind "More". */
  toolSections() {
    const list = "Slices of the active lane in view, as a table";
    const names = "What is in view as a table: of the active lane, or of all (R)";
    const mark = "Mark a moment with a note, kept in the link (M)";
    const all = "Lanes of every rank, or one line per rank (O: of one)";
    const toPerfetto = button("Perfetto", "This span in the Perfetto UI", () => this.toPerfetto());
    const statistics = button("Statistics", names, () => this.chooseView(), "R");
    const kept = [button("Mark", mark, () => this.addNote(), "M"), ...(this.config.perfetto ? [toPerfetto] : [])];
    return [
      ["Lanes", this.boxes()],
      ["Ranks", [...this.orderBar(), button("Open all", all, () => this.openAll())]],
      ["Tables", [statistics, button("List lane", list, () => this.list())]],
      ["Keep and hand on", kept],
    ];
  },

  boxes() {
    const operators = tick("operators", false, (on) => {
      this.operators = on;
      const sought = this.found && this.found.typed;
      this.attempt(async () => {
        await this.expand();
        if (sought && sought === this.box.value) await this.find();
      });
    });
    const kinds = this.info.kinds.map(([kind, words]) =>
      tick(words, this.kinds.has(kind), (on) => this.toggleKind(kind, on)),
    );
    this.counterBox = element("span", "", { class: "quiet" });
    return [...kinds, ...(this.info.fixed || this.config.beside ? [] : [operators]), this.counterBox];
  },
});

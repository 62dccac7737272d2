/* The timeline's elements: the bar with its buttons, the canvas in what scrolls, and the places of words. */
(function () {
  "use strict";
  const { element, HELP, Timeline } = window.ddprof;

  function button(text, title, action) {
    const made = element("button", text, { type: "button", title });
    made.addEventListener("click", action);
    return made;
  }

  function pressed(text, title, isOn, change) {
    const made = button(text, title, () => {
      change();
      made.setAttribute("aria-pressed", String(isOn()));
    });
    made.setAttribute("aria-pressed", String(isOn()));
    return made;
  }

  function box(words, checked, change) {
    const tick = element("input", "", { type: "checkbox" });
    tick.checked = checked;
    tick.addEventListener("change", () => change(tick.checked));
    return element("label", [tick, " " + words]);
  }

  Object.assign(Timeline.prototype, {
    build() {
      const find = "Search: kernel, operator, module, collective, or rank 7, step 12";
      const said = "timeline-say";
      this.box = element("input", "", { type: "search", "aria-label": find, title: find, maxlength: 200 });
      this.box.placeholder = "kernel, module, rank 7, step 12";
      this.said = element("output", "", { class: "quiet", "aria-label": "Hits of the search" });
      this.say = element("span", "", { class: "quiet", "aria-live": "polite", id: said });
      const words = `Timeline of ${this.info.lanes.length} lanes. ${HELP}`;
      const spoken = { role: "img", "aria-describedby": said, "aria-label": words };
      this.canvas = element("canvas", "", { tabindex: "0", ...spoken });
      this.spacer = element("div");
      this.scroller = element("div", [this.canvas, this.spacer], { class: "tl-scroll" });
      this.tip = element("div", "", { class: "tl-tip", hidden: "" });
      this.panel = element("div", "", { class: "tl-panel" });
      this.sheets = element("div", "", { class: "tl-paper" });
      const found = [button("‹", "Previous hit (Shift+N)", () => this.stepHit(-1)), this.said];
      found.push(button("›", "Next hit (N)", () => this.stepHit(1)));
      this.foundBar = element("span", found, { class: "tl-found", hidden: "" });
      const bar = element("div", [this.box, this.foundBar, ...this.buttons(), ...this.boxes()], { class: "tl-bar" });
      const help = element("p", HELP, { class: "quiet" });
      const above = [bar, ...this.stepBar(), ...this.orderBar(), this.say, this.buildMap()];
      this.root.replaceChildren(...above, this.scroller, this.tip, help, this.buildNotes(), this.sheets, this.panel);
    },

    buttons() {
      const arrows = "Arrows from the late rank to those that wait";
      const path = "The chain of work that makes the run as long as it is (P)";
      const next = button("Next finding", "Next finding ( ] )", () => this.jumpBy(1));
      const waits = pressed(
        "Who waits for whom",
        arrows,
        () => Boolean(this.showArrows),
        () => this.toggleArrows(),
      );
      const critical = pressed(
        "Critical path",
        path,
        () => this.showPath,
        () => this.togglePath(),
      );
      return [
        button("−", "Zoom out (S)", () => this.zoom(1.6)),
        button("+", "Zoom in (W)", () => this.zoom(0.6)),
        button("All", "Whole run (F)", () => this.show(...this.bounds)),
        ...(this.config.beside ? [] : [waits, critical]), // of one run
        ...(this.spans.length ? [next] : []),
        button("List lane", "Slices of the active lane in view, as a table", () => this.list()),
        button("Statistics", "What is in view as a table: of the active lane, or of all (R)", () => this.chooseView()),
        button("Mark", "Mark a moment with a note, kept in the link (M)", () => this.addNote()),
        ...(this.config.perfetto ? [button("Perfetto", "This span in the Perfetto UI", () => this.toPerfetto())] : []),
        button("Open all", "Lanes of every rank, or one line per rank (O)", () => this.openAll()),
      ];
    },

    boxes() {
      const operators = box("operators", false, (on) => {
        this.operators = on;
        const sought = this.found && this.found.typed;
        this.attempt(async () => {
          await this.expand();
          if (sought && sought === this.box.value) await this.find();
        });
      });
      const kinds = this.info.kinds.map(([kind, words]) => {
        return box(words, this.kinds.has(kind), (on) => this.toggleKind(kind, on));
      });
      this.counterBox = element("span", "", { class: "quiet" });
      return [...kinds, ...(this.info.fixed || this.config.beside ? [] : [operators]), this.counterBox];
    },
  });
})();

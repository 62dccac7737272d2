/* The bar above the picture is one line: what has no room in it moves behind "More", where the rest always is. */
const { element, Timeline } = ddprof;

Object.assign(Timeline.prototype, {
  /* The bar and what "More" shows. `parts`: {inTurn, leaves}, as they stand and as they leave; `sections`: [words,
     content] of what never stands in the bar. */
  buildBar(search, parts, sections) {
    this.barParts = parts;
    this.folded = element("div", "", { class: "tl-folded" });
    const groups = sections.map(([words, content]) => element("fieldset", [element("legend", words), ...content]));
    this.menu = element("div", [this.folded, ...groups], { class: "tl-menu", id: "timeline-more", hidden: "" });
    const opens = { type: "button", "aria-expanded": "false", "aria-controls": "timeline-more" };
    this.more = element("button", "More", { class: "tl-more", ...opens });
    this.bar = element("div", [search, ...parts.inTurn, this.more], { class: "tl-bar" });
    this.listenToBar();
    return [this.bar, this.menu];
  },

  listenToBar() {
    const { bar, menu, more } = this;
    more.addEventListener("click", () => this.openMore(menu.hidden));
    const isCommand = (of) => of.tagName === "BUTTON" && !of.hasAttribute("aria-pressed") && !of.closest(".tl-part");
    // Before the command: some give the focus to something else.
    const command = (event) => isCommand(event.target) && this.closeMore();
    menu.addEventListener("click", command, { capture: true });
    const leaves = (event) => {
      const to = event.relatedTarget;
      if (to && to !== more && !menu.contains(to)) this.openMore(false);
    };
    [menu, more].forEach((of) => {
      of.addEventListener("keydown", (event) => event.key === "Escape" && this.closeMore());
      of.addEventListener("focusout", leaves);
    });
    const room = new ResizeObserver(() => this.fitBar());
    [bar, this.foundBar].forEach((of) => room.observe(of));
  },

  openMore(isOpen) {
    this.menu.hidden = !isOpen;
    this.more.setAttribute("aria-expanded", String(isOpen));
  },

  closeMore() {
    if (this.menu.hidden) return;
    this.more.focus();
    this.openMore(false);
  },

  /* A press beside the menu closes it. */
  pressBeside(event) {
    if (!this.menu.contains(event.target) && event.target !== this.more) this.openMore(false);
  },

  /* Everything back into the bar, then out of it in turn until it is no wider than its place. */
  fitBar() {
    const { bar, folded, more } = this;
    const { inTurn, leaves } = this.barParts;
    const focused = document.activeElement;
    inTurn.forEach((part) => more.before(part));
    const isWide = () => bar.scrollWidth > bar.clientWidth;
    const out = new Set();
    for (let i = 0; i < leaves.length && isWide(); i++) {
      out.add(leaves[i]);
      folded.append(leaves[i]);
    }
    inTurn.filter((part) => out.has(part)).forEach((part) => folded.append(part));
    if (focused === document.activeElement || !(bar.contains(focused) || folded.contains(focused))) return;
    const isSeen = bar.contains(focused) || !this.menu.hidden;
    (isSeen ? focused : more).focus({ preventScroll: true });
  },
});

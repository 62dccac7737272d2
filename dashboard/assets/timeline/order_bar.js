/* The two lists behind "More" that say how ranks are grouped and ordered. */
const { element, Timeline } = ddprof;

function list(words, choices, chosen, change) {
  const options = choices.map(([value, text, why]) => {
    const told = why ? `${text} (${why})` : text;
    const option = element("option", told, { value, ...(why ? { disabled: "" } : {}) });
    option.selected = value === chosen;
    return option;
  });
  const made = element("select", options, { "aria-label": words });
  made.addEventListener("change", () => change(made.value));
  return element("label", [words + " ", made]);
}

Object.assign(Timeline.prototype, {
  orderBar() {
    this.orders = element("div", "", { class: "tl-orders", role: "group", "aria-label": "Arrangement" });
    this.offerOrders();
    return this.ranks().length > 1 ? [this.orders] : [];
  },

  /* The lists anew: what this run does not tell is there with the reason. */
  offerOrders() {
    const asked = (id) => this.groupings.find((grouping) => grouping.id === id) || { why: "not known yet" };
    const roles = [
      ["tp", "tensor-parallel group"],
      ["pp", "pipeline stage"],
      ["dp", "data-parallel group"],
    ].map(([id, words]) => [id, words, asked(id).why]);
    const alone = this.hostGroups().length < 2 ? "one host" : this.isAlone ? "one rank on each" : "";
    const late = this.lateness.size ? "" : "no collective is seen on two ranks";
    const blocks = this.closes ? [["block", "number"]] : [];
    const by = [["none", "nothing"], ["host", "host", alone], ...roles, ...blocks];
    const order = [
      ["rank", "rank"],
      ["late", "lateness at collectives", late],
    ];
    const change = (name) => (value) => {
      this[name] = value;
      this.layout();
      this.refetch();
      this.link();
    };
    this.orders.replaceChildren(
      list("Group by", by, this.by, change("by")),
      list("Order by", order, this.order, change("order")),
    );
  },
});

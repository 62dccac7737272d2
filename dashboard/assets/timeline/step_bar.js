/* The bar that picks a step: its number, a slider, one before and one after, and folding. */
const { button, element, Timeline } = ddprof;

const named = (title) => ({ title, "aria-label": title });

Object.assign(Timeline.prototype, {
  /* Its two parts; none where no step is on every rank, no slider where there is one step, which is only folded. */
  stepParts(part) {
    const last = this.info.steps - 1;
    if (!this.info.steps) return [null, null];
    const ends = { min: "0", max: String(last), step: "1" };
    this.stepNumber = element("input", "", { type: "number", ...ends, "aria-label": "Step", placeholder: "–" });
    this.stepSlider = element("input", "", { type: "range", ...ends, value: "0", "aria-label": "Step, by a slider" });
    this.stepNumber.addEventListener("change", () => this.takeStep(this.stepNumber.valueAsNumber));
    this.stepSlider.addEventListener("input", () => this.takeStep(this.stepSlider.valueAsNumber));
    const folds = "One step of all ranks under one another, aligned at its start (G)";
    this.foldBox = element("input", "", { type: "checkbox" });
    this.foldBox.addEventListener("change", () => this.setFold(this.foldBox.checked));
    const parts = [
      "Step",
      button("‹", named("Step before ( , )"), () => this.stepBy(-1)),
      this.stepNumber,
      button("›", named("Next step ( . )"), () => this.stepBy(1)),
      last ? `of 0 to ${last}` : "of 1",
      element("label", [this.foldBox, " fold"], { title: folds }),
    ];
    const steps = part(parts, "tl-steps");
    steps.setAttribute("role", "group");
    steps.setAttribute("aria-label", "Steps");
    return [steps, last ? part(this.stepSlider, "tl-steps") : null];
  },

  stepBy(count) {
    return this.takeStep(this.scrubbed ? this.scrubbed.number + count : 0);
  },

  /* What is picked, in the bar. */
  showStep() {
    if (!this.stepNumber) return;
    this.foldBox.checked = Boolean(this.folds);
    if (!this.scrubbed) return;
    this.stepNumber.value = this.stepSlider.value = String(this.scrubbed.number);
  },
});

/* Controls of the What-if page: native inputs with what was recorded, what a finding suggests and what a change
   assumes. A value is text as the command line takes it, "" as recorded; the address holds the scenario. */
const { button, callbacks, element } = ddprof;
const WAIT_MS = 60; // between a control's last move and the replay
const WIDE_PX = 900; // from here the settings that nobody suggests are open from the start
let timer = 0;

function send(values) {
  const address = new URL(window.location.href);
  Object.entries(values).forEach(([key, text]) => {
    if (text) address.searchParams.set(key, text);
    else address.searchParams.delete(key);
  });
  window.history.replaceState(window.history.state, "", address);
  clearTimeout(timer);
  const chosen = Object.fromEntries(Object.entries(values).filter(([, text]) => text));
  timer = setTimeout(() => window.dash_clientside.set_props("what-if-values", { data: chosen }), WAIT_MS);
}

/* The input of a value: its elements, `read()` -> text, `write(text)`. */
const inputs = {
  switch(c, id, changed) {
    const tick = element("input", "", { type: "checkbox", id, "aria-describedby": id + "-assumes" });
    tick.addEventListener("change", changed);
    return {
      parts: [element("label", [tick, " " + c.words], { for: id })],
      read: () => (tick.checked ? c.on : ""),
      write: (text) => (tick.checked = text !== ""),
    };
  },
  factor(c, id, changed) {
    const bounds = { min: 1, max: c.most, step: c.step };
    const shown = element("output", "", { for: id });
    const slider = element("input", "", { type: "range", id, ...bounds, "aria-describedby": id + "-assumes" });
    const tell = () => {
      shown.textContent = slider.value + "×";
      slider.setAttribute("aria-valuetext", slider.value + " times");
    };
    slider.addEventListener("input", () => {
      tell();
      changed();
    });
    return {
      parts: [element("label", c.words + " ", { for: id }), shown, slider],
      read: () => (Number(slider.value) === 1 ? "" : slider.value),
      write: (text) => {
        slider.value = text || 1;
        tell();
      },
    };
  },
  number(c, id, changed) {
    const field = element("input", "", { type: "number", id, min: 0, step: "any", placeholder: "as recorded" });
    field.setAttribute("aria-describedby", id + "-assumes");
    field.addEventListener("input", changed);
    const unit = c.unit ? ` (${c.unit})` : "";
    return {
      parts: [element("label", c.words + unit + " ", { for: id }), field],
      read: () => field.value,
      write: (text) => (field.value = text),
    };
  },
  choice(c, id, changed) {
    const options = [["", "as recorded"], ...c.choices.map((word) => [word, word])];
    const list = element(
      "select",
      options.map(([value, words]) => element("option", words, { value })),
      { id, "aria-describedby": id + "-assumes" },
    );
    list.addEventListener("change", changed);
    return {
      parts: [element("label", c.words + " ", { for: id }), list],
      read: () => list.value,
      write: (text) => (list.value = text),
    };
  },
};

/* The ranks that a value is for: all of them where the field is empty. */
function ranksField(c, id, changed) {
  const hint = c.ranks === "needed" ? "which? 3 or 0,3" : "all";
  const field = element("input", "", { type: "text", id: id + "-ranks", placeholder: hint, class: "ranks" });
  field.addEventListener("input", changed);
  const label = element("label", ["ranks ", field], { class: "quiet" });
  return { label, field };
}

function control(c, change) {
  const id = "what-if-" + c.key;
  const changed = () => change(c.key, read());
  const input = inputs[c.kind](c, id, changed);
  const ranks = c.ranks ? ranksField(c, id, changed) : null;

  function read() {
    const value = input.read();
    const which = ranks ? ranks.field.value.trim() : "";
    if (!value || (c.ranks === "needed" && !which)) return "";
    return which ? `${value}@${which}` : value;
  }

  function write(text) {
    const [value, which] = text.split("@");
    input.write(value);
    if (ranks) ranks.field.value = which || "";
  }

  write(c.value);
  const said = element("p", c.assumption, { class: "quiet", id: id + "-assumes" });
  const now = c.current ? [element("p", "Now: " + c.current, { class: "now" })] : [];
  return element("div", [...input.parts, ...(ranks ? [ranks.label] : []), ...now, ...suggestion(), said], {
    class: "control",
  });

  function suggestion() {
    if (c.because === null) return [];
    const [value, which] = c.suggested.split("@");
    const wanted = (c.kind === "switch" ? "this" : value) + (which ? " for rank " + which : "");
    const use = button("Use it", { "aria-label": `${c.words}: use ${wanted}` }, () => {
      write(c.suggested);
      changed();
    });
    return [element("p", [`Finding ${c.because} suggests ${wanted} `, use], { class: "suggested" })];
  }
}

function controls(config) {
  const place = document.getElementById("what-if-controls");
  if (!config || !place) return "";
  const values = Object.fromEntries(config.map((c) => [c.key, c.value]));
  const change = (key, text) => {
    values[key] = text;
    send(values);
  };
  const made = (some) => some.map((c) => control(c, change));
  const suggested = config.filter((c) => c.because !== null);
  const others = config.filter((c) => c.because === null);
  const head = suggested.length ? "Other settings" : "Settings";
  const folded = element("details", [element("summary", `${head} that apply (${others.length})`), ...made(others)]);
  folded.open = window.innerWidth > WIDE_PX || !suggested.length;
  place.replaceChildren(...made(suggested), folded);
  return "";
}

callbacks.controls = controls;

/* Controls of the What-if page: native inputs with label and assumption. The address holds the scenario. */
(function () {
  "use strict";
  const { callbacks, element } = window.ddprof;
  const WAIT_MS = 60; // between a control's last move and the replay
  let timer = 0;

  function send(values, config) {
    const address = new URL(window.location.href);
    config.forEach((c) => {
      const neutral = c.is_switch ? 0 : 1;
      if (values[c.key] === neutral) address.searchParams.delete(c.key);
      else address.searchParams.set(c.key, String(values[c.key]));
    });
    window.history.replaceState(window.history.state, "", address);
    clearTimeout(timer);
    timer = setTimeout(() => window.dash_clientside.set_props("what-if-values", { data: { ...values } }), WAIT_MS);
  }

  function control(c, change) {
    const id = "what-if-" + c.key;
    const said = element("p", c.assumption, { class: "quiet", id: id + "-assumes" });
    const parts = c.is_switch ? switched(c, id, change) : scaled(c, id, change);
    return element("div", [...parts, said], { class: "control" });
  }

  function switched(c, id, change) {
    const tick = element("input", "", { type: "checkbox", id, "aria-describedby": id + "-assumes" });
    tick.checked = Boolean(c.value);
    tick.addEventListener("change", () => change(c.key, tick.checked ? 1 : 0));
    return [element("label", [tick, " " + c.words], { for: id })];
  }

  function scaled(c, id, change) {
    const bounds = { min: 1, max: c.most, step: c.step, value: c.value };
    const shown = element("output", "", { for: id });
    const slider = element("input", "", { type: "range", id, ...bounds, "aria-describedby": id + "-assumes" });
    const tell = () => {
      shown.textContent = slider.value + "×";
      slider.setAttribute("aria-valuetext", slider.value + " times");
    };
    tell();
    slider.addEventListener("input", () => {
      tell();
      change(c.key, Number(slider.value));
    });
    return [element("label", c.words + " ", { for: id }), shown, slider];
  }

  function controls(config) {
    const place = document.getElementById("what-if-controls");
    if (!config || !place) return "";
    const values = Object.fromEntries(config.map((c) => [c.key, c.value]));
    const change = (key, value) => {
      values[key] = value;
      send(values, config);
    };
    place.replaceChildren(...config.map((c) => control(c, change)));
    return "";
  }

  callbacks.controls = controls;
})();

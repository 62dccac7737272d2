/* The What-if page's controls: native inputs, each with its label and what it assumes; the scenario goes into the address. */
(function () {
  "use strict";
  const WAIT_MS = 60;
  let timer = 0;

  function node(kind, attributes, ...children) {
    const made = document.createElement(kind);
    Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
    made.append(...children);
    return made;
  }

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

  function control(c, values, config) {
    const id = "what-if-" + c.key, said = node("p", { class: "quiet", id: id + "-assumes" }, c.assumption);
    if (c.is_switch) {
      const tick = node("input", { type: "checkbox", id, "aria-describedby": id + "-assumes" });
      tick.checked = Boolean(c.value);
      tick.addEventListener("change", () => { values[c.key] = tick.checked ? 1 : 0; send(values, config); });
      return node("div", { class: "control" }, node("label", { for: id }, tick, " " + c.words), said);
    }
    const shown = node("output", { for: id }, c.value + "×");
    const slider = node("input", { type: "range", id, min: 1, max: c.most, step: c.step, value: c.value, "aria-describedby": id + "-assumes" });
    const tell = () => { shown.textContent = slider.value + "×"; slider.setAttribute("aria-valuetext", slider.value + " times"); };
    tell();
    slider.addEventListener("input", () => { values[c.key] = Number(slider.value); tell(); send(values, config); });
    return node("div", { class: "control" }, node("label", { for: id }, c.words + " "), shown, slider, said);
  }

  function controls(config) {
    const place = document.getElementById("what-if-controls");
    if (!config || !place) return "";
    const values = Object.fromEntries(config.map((c) => [c.key, c.value]));
    place.replaceChildren(...config.map((c) => control(c, values, config)));
    return "";
  }

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.ddprof = Object.assign(window.dash_clientside.ddprof || {}, { controls });
})();

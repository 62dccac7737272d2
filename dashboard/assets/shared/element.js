/* Elements that scripts make. Words become text content: the browser never parses them as HTML. */
/* `content`: words, or a list of words and elements. */
ddprof.element = (kind, content, attributes) => {
  const made = document.createElement(kind);
  Object.entries(attributes || {}).forEach(([name, value]) => made.setAttribute(name, value));
  made.append(...[].concat(content || []));
  return made;
};

ddprof.button = (words, attributes, action) => {
  const made = ddprof.element("button", words, { type: "button", ...attributes });
  made.addEventListener("click", action);
  return made;
};

/* A checkbox with its words; `change` is told whether it is ticked. */
ddprof.tick = (words, isTicked, change) => {
  const made = ddprof.element("input", "", { type: "checkbox" });
  made.checked = isTicked;
  made.addEventListener("change", () => change(made.checked));
  return ddprof.element("label", [made, " " + words]);
};

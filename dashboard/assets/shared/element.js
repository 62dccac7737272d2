/* Elements that scripts make. Words become text content: the browser never parses them as HTML. */
(function () {
  "use strict";
  const ddprof = (window.ddprof = window.ddprof || {});

  /* `content`: words, or a list of words and elements. */
  ddprof.element = (kind, content, attributes) => {
    const made = document.createElement(kind);
    Object.entries(attributes || {}).forEach(([name, value]) => made.setAttribute(name, value));
    made.append(...[].concat(content || []));
    return made;
  };
})();

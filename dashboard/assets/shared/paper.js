/* Paper is light: pages and pictures are printed in the light theme, whatever the screen shows. */
(function () {
  "use strict";
  const page = document.documentElement.dataset;
  let onScreen = null;

  window.addEventListener("beforeprint", () => {
    onScreen = page.theme || "";
    page.theme = "light";
  });
  window.addEventListener("afterprint", () => {
    if (onScreen) page.theme = onScreen;
    else if (onScreen === "") delete page.theme;
    onScreen = null;
  });
})();

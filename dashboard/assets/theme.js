/* Light or dark: the system's choice until the button is pressed; a cookie tells the server which colours figures need. */
(function () {
  "use strict";
  const KEY = "ddprof_theme";
  const stored = document.cookie.split("; ").find((c) => c.startsWith(KEY + "="));
  const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  function apply(theme) {
    document.documentElement.dataset.theme = theme;
    document.cookie = KEY + "=" + theme + "; path=/; SameSite=Strict; max-age=31536000";
  }
  apply(stored ? stored.split("=")[1] : system);
  /* Paper is light: what scripts draw is drawn again. */
  let screen = null;
  window.addEventListener("beforeprint", () => { screen = document.documentElement.dataset.theme; document.documentElement.dataset.theme = "light"; });
  window.addEventListener("afterprint", () => { if (screen) document.documentElement.dataset.theme = screen; screen = null; });
  document.addEventListener("click", (event) => {
    if (event.target.id !== "theme") return;
    apply(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    window.location.reload();
  });
})();

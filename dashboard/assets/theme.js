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
  document.addEventListener("click", (event) => {
    if (event.target.id !== "theme") return;
    apply(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    window.location.reload();
  });

  /* The scenario of the What-if page in the address, so that a copied link shows it. */
  function linkScenario(values, ids) {
    const address = new URL(window.location.href);
    ids.forEach((id, i) => {
      const value = Array.isArray(values[i]) ? values[i].length : values[i];
      const neutral = Array.isArray(values[i]) ? 0 : 1;
      if (value === neutral || value === undefined) address.searchParams.delete(id["what-if"]);
      else address.searchParams.set(id["what-if"], String(value));
    });
    window.history.replaceState(window.history.state, "", address);
    return "";
  }
  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.ddprof = Object.assign(window.dash_clientside.ddprof || {}, { linkScenario });
})();

/* Light or dark: the system's choice until the button is pressed. A cookie tells the server which colours to draw. */
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

/* Paper is light, and nothing on it unfolds: pages and pictures are printed in the light theme, whatever the screen
   shows, with what was checked and not found by name. */
const page = document.documentElement.dataset;
let onScreen = null, folded = [];

window.addEventListener("beforeprint", () => {
  onScreen = page.theme || "";
  page.theme = "light";
  folded = [...document.querySelectorAll("details.checked:not([open])")];
  for (const one of folded) one.open = true;
});
window.addEventListener("afterprint", () => {
  if (onScreen) page.theme = onScreen;
  else if (onScreen === "") delete page.theme;
  onScreen = null;
  for (const one of folded) one.open = false;
  folded = [];
});

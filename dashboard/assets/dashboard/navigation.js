/* On a small screen the navigation is one line that is pushed sideways: the page that is open stays in view. */
function show() {
  const line = document.getElementById("navigation");
  const link = line && line.querySelector(".current");
  if (!link || line.scrollWidth <= line.clientWidth) return;
  line.scrollLeft = link.offsetLeft - line.offsetLeft - (line.clientWidth - link.offsetWidth) / 2;
}

/* Dash draws the links anew for each page. */
const draws = { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] };
const seen = new MutationObserver((changes) => {
  if (changes.some(({ target }) => target.closest && target.closest("#navigation"))) show();
});
document.addEventListener("DOMContentLoaded", () => seen.observe(document.body, draws));

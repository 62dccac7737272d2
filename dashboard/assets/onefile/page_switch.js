/* One page of the file at a time, named by the part of the address behind #. Without this script all pages stand one
   below the other. */
const pages = Array.from(document.querySelectorAll("main > .page"));
const links = Array.from(document.querySelectorAll(".pages a"));
const title = document.title;

/* "#timeline/2" is the page and what to show on it. */
function asked() {
  const [name, detail] = window.location.hash.slice(1).split("/");
  return [pages.find((page) => page.id === name) || pages[0], detail];
}

function show(moveFocus) {
  const [page, detail] = asked();
  pages.forEach((other) => {
    other.hidden = other !== page;
  });
  links.forEach((link) => {
    if (link.hash === "#" + page.id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  document.title = page === pages[0] ? title : page.querySelector("h1").textContent + " · " + title;
  window.scrollTo(0, 0);
  if (moveFocus) page.querySelector("h1").focus({ preventScroll: true });
  page.dispatchEvent(new CustomEvent("ddprof-shown", { detail }));
}

/* Paper holds every page; pictures that are drawn by scripts are drawn for it. */
window.addEventListener("beforeprint", () => {
  pages.forEach((page) => {
    page.hidden = false;
    page.dispatchEvent(new CustomEvent("ddprof-print"));
  });
});
window.addEventListener("afterprint", () => show(false));
window.addEventListener("hashchange", () => show(true));
show(false);

/* Copying to the clipboard. Where the browser gives none the text is selected in its place, to be copied by hand. */
const SAID_MS = 2000;

function select(place) {
  const range = document.createRange();
  range.selectNodeContents(place);
  const selection = window.getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

/* Copies text, which `place` holds or, where it is hidden, is to hold; the pressed button says what came of it. */
ddprof.copy = async (button, text, place) => {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    place.textContent = text;
    place.hidden = false;
    select(place);
    button.textContent = "Selected";
  }
  window.setTimeout(() => {
    button.textContent = words;
  }, SAID_MS);
};

document.addEventListener("click", (event) => {
  const button = event.target.closest ? event.target.closest("button.copy") : null;
  const place = button && button.closest(".listing").querySelector("pre");
  if (place) ddprof.copy(button, place.textContent, place);
});

/* Buttons that copy the text beside them. Where the browser gives no clipboard the text is selected, to be copied by
   hand. */
const SAID_MS = 2000;

function select(place) {
  const range = document.createRange();
  range.selectNodeContents(place);
  const selection = window.getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest ? event.target.closest("button.copy") : null;
  if (!button) return;
  const place = button.closest(".listing").querySelector("pre");
  let said = "Copied";
  try {
    await navigator.clipboard.writeText(place.textContent);
  } catch {
    select(place);
    said = "Selected";
  }
  button.textContent = said;
  window.setTimeout(() => {
    button.textContent = "Copy";
  }, SAID_MS);
});

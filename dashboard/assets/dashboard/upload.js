/* The form of the Data page that adds traces: a native file input and a button; answers are text, never HTML. */
const { callbacks, element } = ddprof;

async function send(files, config) {
  const total = files.reduce((sum, file) => sum + file.size, 0);
  if (total > config.limit_bytes) throw new Error(config.too_large);
  const body = new FormData();
  files.forEach((file) => body.append(config.field, file, file.name));
  const answer = await fetch("data/upload", {
    method: "POST",
    body,
    headers: { [config.header]: "1" },
    credentials: "same-origin",
  });
  const text = await answer.text();
  if (!answer.ok)
    throw new Error(answer.status < 500 ? text : `the server failed (${answer.status}); its terminal says why`);
  return JSON.parse(text).run;
}

function form(config) {
  const place = document.getElementById("upload-form");
  if (!config || !place) return "";
  const label = element("label", "Trace files ", { for: "upload-files" });
  const input = element("input", "", {
    type: "file",
    multiple: "",
    id: "upload-files",
    "aria-describedby": "upload-words",
  });
  const button = element("button", "Analyze", { type: "button", id: "upload-send" });
  const said = element("p", "", { id: "upload-said", "aria-live": "polite", class: "quiet" });
  const tell = (words, failed) => {
    said.textContent = words;
    said.className = failed ? "notice error" : "quiet";
  };
  button.addEventListener("click", async () => {
    const files = Array.from(input.files);
    if (!files.length) {
      tell("Choose one or several files first.", true);
      return;
    }
    button.disabled = true;
    tell(`Reading ${files.length === 1 ? files[0].name : files.length + " files"} …`, false);
    try {
      window.location.assign("./?run=" + (await send(files, config)));
    } catch (error) {
      tell(error instanceof TypeError ? "the server ended the upload: " + error.message : error.message, true);
      button.disabled = false;
    }
  });
  place.replaceChildren(label, input, button, said);
  return "";
}

callbacks.uploadForm = form;

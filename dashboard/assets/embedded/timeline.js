/* The timeline of the file: unpacked, answered without a server, drawn when its page is first seen. */
const root = document.getElementById("timeline-root");
if (!root) return;

let held = null;
const parts = ["timeline-held", "timeline-tile"].map(ddprof.unpacked);
const loaded = Promise.all(parts).then(([text, bytes]) => {
  held = new ddprof.Held(JSON.parse(new TextDecoder().decode(text)), ddprof.decodeTile(bytes));
});

/* As the server's routes (assets/timeline/data.js). */
ddprof.timelineData = {
  lanes: async () => held.info,
  tile: async () => held.tile,
  tileNow: () => held.tile,
  slice: async (of, row) => held.slice(row),
  statistics: async (of, lanes, lo, hi, step) => held.statistics(lanes, lo, hi, step),
  search: async (of, text, ranks, first) => held.search(text, first),
  places: async (of, text, tile) => held.places(text, tile),
  waits: async (of, lo, hi) => held.waitsIn(lo / 1e3, hi / 1e3),
  step: async (of, number) => held.steps[number],
  overview: async () => held.overview,
  path: async () => held.path,
  counters: async () => held.counters,
  arrangement: async () => held.arrangement,
};

/* A hidden page has no width: only a page that is seen can be drawn. */
function draw() {
  if (!ddprof.timeline) {
    ddprof.timeline = new ddprof.Timeline(root, held.config, held.info);
    ddprof.timeline.tile = held.tile;
  }
  ddprof.timeline.resize();
  ddprof.timeline.painter.theme();
  ddprof.timeline.painter.paint();
}

const page = root.closest(".page");

async function seen(event) {
  await loaded;
  if (page.hidden) return;
  draw();
  ddprof.timeline.readNotes();
  if (event.detail) ddprof.timeline.jump(Number(event.detail));
}

page.addEventListener("ddprof-shown", (event) => {
  seen(event).catch((error) => {
    root.textContent = String(error.message);
  });
});
page.addEventListener("ddprof-print", () => {
  if (!held) return;
  draw();
  ddprof.timeline.drawPaper();
});

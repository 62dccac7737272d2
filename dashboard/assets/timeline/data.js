/* What the server knows of the timeline: one function per route (dashboard/server/routes.py). */
/* Lane numbers as short text: 0-5,9. */
function ranges(numbers) {
  const parts = [];
  for (let i = 0; i < numbers.length; i++) {
    let j = i;
    while (j + 1 < numbers.length && numbers[j + 1] === numbers[j] + 1) j++;
    parts.push(j > i ? numbers[i] + "-" + numbers[j] : String(numbers[i]));
    i = j;
  }
  return parts.join(",");
}

const address = (route, query) => "data/" + route + "?" + new URLSearchParams(query);

async function ask(route, query) {
  const answer = await fetch(address(route, query), { credentials: "same-origin" });
  if (!answer.ok) throw new Error(route + ": " + (await answer.text()));
  return answer;
}

const get = async (route, query) => (await ask(route, query)).json();

/* Without a pause for anything else: a page that is about to be printed cannot wait. Bytes come as the low halves of
   characters. */
function bytesNow(route, query) {
  const asked = new XMLHttpRequest();
  asked.open("GET", address(route, query), false);
  asked.overrideMimeType("text/plain; charset=x-user-defined");
  asked.send();
  if (asked.status !== 200) throw new Error(route + ": " + asked.responseText);
  return Uint8Array.from(asked.responseText, (c) => c.charCodeAt(0) & 255).buffer;
}

const view = (lo, hi) => ({ lo: Math.round(lo), hi: Math.round(hi) });
const part = (of, lanes, lo, hi) => ({ ...of, lanes: ranges(lanes), ...view(lo, hi) });

/* `of` is {run, expanded}: the run, and the ranks whose operators are lanes too. Times are ns. */
async function traced(of, span) {
  const answer = await ask("trace.json.gz", { ...of, ...span });
  return { buffer: await answer.arrayBuffer(), holds: answer.headers.get("X-Ddprof-Holds") };
}

ddprof.ranges = ranges;
ddprof.timelineData = {
  lanes: (of, ranks) => get("lanes", { ...of, ranks: ranks || "" }),
  tile: async (of, lanes, lo, hi, bins) =>
    ddprof.decodeTile(await (await ask("tile", { ...part(of, lanes, lo, hi), bins })).arrayBuffer()),
  tileNow: (of, lanes, lo, hi, bins) => ddprof.decodeTile(bytesNow("tile", { ...part(of, lanes, lo, hi), bins })),
  slice: (of, row) => get("slice", { ...of, row }),
  /* With a step, times count from each rank's start of it. */
  statistics: (of, lanes, lo, hi, step) =>
    get("statistics", { ...part(of, lanes, lo, hi), ...(step === null ? {} : { step }) }),
  search: (of, text, ranks, first) => get("search", { ...of, text, ranks: ranks || "", first }),
  /* Where hits are in a tile and its lanes, and on some further ranks. */
  places: (of, text, tile, ranks) => {
    const lanes = [...tile.lanes.keys()].sort((a, b) => a - b);
    return get("places", { ...part(of, lanes, tile.lo, tile.hi), bins: tile.bins, text, ranks: ranges(ranks) });
  },
  waits: (of, lo, hi) => get("waits", { ...of, ...view(lo, hi) }),
  step: (of, number) => get("step", { ...of, number }),
  overview: (of, ranks) => get("overview", { ...of, ranks: ranks || "" }),
  counters: (of) => get("counters", of),
  arrangement: (of) => get("arrangement", of),
  /* A trace for the Perfetto UI, of {ranks, lo, hi}, and what it holds in words. */
  trace: traced,
  traceAddress: (of, span) => address("trace.json.gz", { ...of, ...span }),
  path: (of) => get("path", of),
};

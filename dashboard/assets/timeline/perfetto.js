/* The same span in the Perfetto UI, in a tab of its own: the trace goes from this page to that tab and nowhere else.
   Protocol: perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui and embedding-api-reference. */
const { element, time, Timeline } = ddprof;
const PING_MS = 100; // between two; a page that does not listen yet loses them
const TITLE = /[^A-Za-z0-9.\-_#:/?=&;%+$ ]/g; // what the Perfetto UI takes out of a title

ddprof.perfettoPatienceMs = 15_000; // until the reader is told what else can be done; asking goes on meanwhile

/* Resolves when the page in a tab says that it listens; never where it is closed or another page. */
function listening(tab, origin) {
  return new Promise((resolve) => {
    const done = new AbortController();
    const ping = setInterval(() => {
      if (tab.closed) clearInterval(ping);
      else tab.postMessage("PING", "*"); // nothing of the run: until it answers its origin is not known
    }, PING_MS);
    const hear = (event) => {
      if (event.source !== tab || event.origin !== origin || event.data !== "PONG") return;
      clearInterval(ping);
      done.abort();
      resolve();
    };
    window.addEventListener("message", hear, { signal: done.signal });
  });
}

Object.assign(Timeline.prototype, {
  /* The ranks that are open, or all of the picture; and the view in times of the run. */
  spanForPerfetto() {
    const ranks = this.open.size ? this.ranks().filter((rank) => this.open.has(rank)) : this.ranks();
    const [lo, hi] = this.range && !this.isFolded ? this.range : this.viewed();
    return { ranks: ddprof.ranges(ranks), lo: Math.round(lo), hi: Math.round(hi) };
  },

  toPerfetto() {
    const span = this.spanForPerfetto();
    const { href, origin } = new URL(this.config.perfetto);
    const tab = window.open(href, "_blank"); // within the click: the browser allows no tab later
    if (!tab) return this.offerTrace(span, "The browser opened no tab: allow this page to, and press again.");
    this.tell(`Waiting for ${origin} and for the trace …`);
    const away = `No answer from ${origin}: it cannot be reached from here, or it is no Perfetto UI.`;
    const late = setTimeout(() => this.offerTrace(span, away), ddprof.perfettoPatienceMs);
    return this.attempt(async () => {
      try {
        const [{ buffer, holds }] = await Promise.all([
          ddprof.timelineData.trace(this.source(), span),
          listening(tab, origin),
        ]);
        this.post(tab, origin, buffer, holds, span);
      } finally {
        clearTimeout(late);
      }
    });
  },

  /* The trace, then the span: in seconds, because the tab counts so. */
  post(tab, origin, buffer, holds, { lo, hi }) {
    const title = `ddprof ${holds}`.replace(TITLE, " ");
    const trace = { buffer, title, fileName: "ddprof-trace.json.gz", keepApiOpen: true };
    tab.postMessage({ perfetto: trace }, origin, [buffer]);
    const seen = { timeStart: lo / 1e9, timeEnd: hi / 1e9, viewPercentage: 1 };
    tab.postMessage({ perfetto: seen }, origin);
    const span = `${time(lo / 1e3)} to ${time(hi / 1e3)}`;
    this.tell(`In the Perfetto UI, from ${span}: ${holds}. It went to that tab alone, nothing was uploaded.`);
    this.root.dataset.perfetto = "sent";
  },

  /* Where there is no Perfetto UI: the file, and what to type. */
  offerTrace(span, why) {
    const link = { href: ddprof.timelineData.traceAddress(this.source(), span), download: "ddprof-trace.json.gz" };
    const steps = "Open the file with a Perfetto UI (“Open trace file”). All ranks and the whole run:";
    const own = "A Perfetto UI of your own, by its address:";
    this.tell(why);
    this.panel.replaceChildren(
      element("h3", "Without the Perfetto UI", { "aria-level": "2" }),
      element("p", why),
      element("p", [element("a", "Download the trace of this view", link)]),
      element("p", steps),
      element("pre", "ddprof export RUN -o ddprof-trace.json.gz", { tabindex: "0" }),
      element("p", own),
      element("pre", "ddprof serve RUN --perfetto-ui ADDRESS", { tabindex: "0" }),
    );
    this.root.dataset.perfetto = "offered";
  },
});

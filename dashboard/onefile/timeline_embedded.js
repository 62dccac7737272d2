/* The timeline's data routes answered from the file itself: one tile of the whole run, the longest waits, the critical path. */
(function () {
  "use strict";
  const ddprof = window.ddprof, root = document.getElementById("timeline-root");
  if (!root) return;
  let info = null, tile = null, held = null;

  async function unpacked(id) {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  }

  /* The lane and place of a slice, by the number that identifies it. */
  function find(row) {
    for (const [lane, data] of tile.lanes) {
      const place = data.bins ? -1 : data.row.indexOf(row);
      if (place >= 0) return { lane: info.lanes.find((l) => l.id === lane), data, place };
    }
    throw new Error("no such slice");
  }

  function details(row) {
    const { lane, data, place } = find(row), start = tile.lo / 1e3 + data.start[place], end = start + data.dur[place];
    const waits = held.waits.filter((w) => w.victim === lane.rank && w.start_us < end && w.ready_us > start);
    const facts = waits.slice(0, 1).map((w) => `rank ${w.victim} waits ${ddprof.time(w.ready_us - w.start_us)} for rank ${w.culprit}`);
    return { name: tile.names[data.name[place]], category: info.categories[data.category[place]].words, rank: lane.rank, lane: lane.label, start_us: start, dur_us: data.dur[place], facts, members: [] };
  }

  /* Time of each kind of slice of a lane inside [lo, hi], in us; merged lanes give it to the accuracy of their bins. */
  function busy(data, lo, hi, add) {
    const offset = tile.lo / 1e3, width = (tile.hi - tile.lo) / 1e3 / tile.bins;
    const count = data.bins ? data.share.length : data.start.length;
    for (let i = 0; i < count; i++) {
      const start = offset + (data.bins ? i * width : data.start[i]), length = data.bins ? width : data.dur[i];
      const inside = Math.min(hi, start + length) - Math.max(lo, start);
      if (inside > 0) add(data.category[i], data.bins ? (inside * data.share[i]) / 255 : inside, data.bins ? null : data.name[i]);
    }
  }

  function statistics(lanes, lo, hi) {
    const parts = [], names = new Map();
    lanes.forEach((id) => {
      const data = tile.lanes.get(id), lane = info.lanes.find((l) => l.id === id), sums = new Map();
      if (!data) return;
      const counted = ["stream", "comm", "host"].includes(lane.kind);
      busy(data, lo, hi, (category, us, name) => {
        sums.set(category, (sums.get(category) || 0) + us);
        if (!counted || name === null) return;
        const known = names.get(name) || { name: tile.names[name], count: 0, total_us: 0 };
        known.count += 1;
        known.total_us += us;
        names.set(name, known);
      });
      sums.forEach((us, category) => us > 0 && parts.push({ rank: lane.rank, lane: lane.label, category: info.categories[category].words, busy_us: us, share: us / (hi - lo) }));
    });
    return { span_us: hi - lo, parts, names: [...names.values()].sort((a, b) => b.total_us - a.total_us).slice(0, 12) };
  }

  function search(text) {
    const wanted = text.toLowerCase(), names = Object.keys(tile.names).filter((n) => tile.names[n].toLowerCase().includes(wanted)).map(Number);
    const known = new Set(names), hits = [];
    tile.lanes.forEach((data, lane) => {
      if (!data.bins) data.start.forEach((start, i) => known.has(data.name[i]) && hits.push({ lane, start_us: tile.lo / 1e3 + start, dur_us: data.dur[i] }));
    });
    hits.sort((a, b) => a.start_us - b.start_us);
    return { names, count: hits.length, total_us: hits.reduce((sum, hit) => sum + hit.dur_us, 0), hits: hits.slice(0, 200) };
  }

  ddprof.timelineData = {
    lanes: async () => info,
    tile: async () => tile,
    tileNow: () => tile,
    slice: async (of, row) => details(row),
    statistics: async (of, lanes, lo, hi) => statistics(lanes, lo / 1e3, hi / 1e3),
    search: async (of, text) => search(text),
    waits: async (of, lo, hi) => held.waits.filter((w) => w.ready_us > lo / 1e3 && w.start_us < hi / 1e3),
    path: async () => held.path,
  };

  /* Drawn when it is first seen: a hidden page has no width. */
  function draw() {
    if (!ddprof.timeline) {
      ddprof.timeline = new ddprof.Timeline(root, held.config, info);
      ddprof.timeline.tile = tile;
    }
    ddprof.timeline.resize();
    ddprof.timeline.painter.theme();
    ddprof.timeline.painter.paint();
  }

  const page = root.closest(".page");
  const loaded = Promise.all([unpacked("timeline-held"), unpacked("timeline-tile")]).then(([text, bytes]) => {
    held = JSON.parse(new TextDecoder().decode(text));
    info = held.info;
    tile = ddprof.decodeTile(bytes);
  });
  const seen = async (event) => {
    await loaded;
    if (page.hidden) return;
    draw();
    if (event.detail) ddprof.timeline.jump(Number(event.detail));
  };
  page.addEventListener("ddprof-shown", (event) => seen(event).catch((error) => { root.textContent = String(error.message); }));
  page.addEventListener("ddprof-print", () => {
    if (!tile) return;
    draw();
    ddprof.timeline.drawPaper();
  });
})();

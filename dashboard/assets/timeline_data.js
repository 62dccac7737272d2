/* Tiles: fetch one view of the timeline and read it as typed arrays (layout: dashboard/tiles.py). */
(function () {
  "use strict";
  const ddprof = (window.ddprof = window.ddprof || {});

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

  function decode(buffer) {
    const bytes = new Uint8Array(buffer);
    if (String.fromCharCode(bytes[0], bytes[1], bytes[2], bytes[3]) !== "DDT1") throw new Error("not a timeline tile");
    const length = new DataView(buffer).getUint32(4, true);
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
    const total = header.counts.reduce((a, b) => a + b, 0);
    let at = 8 + length;
    const take = (Type, count) => {
      const view = new Type(buffer, at, count);
      at += count * Type.BYTES_PER_ELEMENT;
      return view;
    };
    const tile = { lo: header.lo_ns, hi: header.hi_ns, bins: header.bins, names: header.names, lanes: new Map() };
    const start = take(Float32Array, total), dur = take(Float32Array, total);
    const name = take(Uint32Array, total), row = take(Uint32Array, total), category = take(Uint8Array, total);
    at += (8 - (total % 8)) % 8;
    const dominant = take(Uint8Array, header.binned.length * header.bins);
    const share = take(Uint8Array, header.binned.length * header.bins);
    let first = 0;
    header.exact.forEach((lane, i) => {
      const last = first + header.counts[i];
      const cut = (a) => a.subarray(first, last);
      tile.lanes.set(lane, sorted({ start: cut(start), dur: cut(dur), name: cut(name), row: cut(row), category: cut(category) }));
      first = last;
    });
    header.binned.forEach((lane, i) => {
      const cut = (a) => a.subarray(i * header.bins, (i + 1) * header.bins);
      tile.lanes.set(lane, { bins: true, category: cut(dominant), share: cut(share) });
    });
    return tile;
  }

  /* The server sends a lane category by category; drawing and stepping through slices want time order. */
  function sorted(slices) {
    const order = Array.from(slices.start.keys()).sort((a, b) => slices.start[a] - slices.start[b]);
    const pick = (a) => a.constructor.from(order, (i) => a[i]);
    return { start: pick(slices.start), dur: pick(slices.dur), name: pick(slices.name), row: pick(slices.row), category: pick(slices.category) };
  }

  const address = (route, query) => "data/" + route + "?" + new URLSearchParams(query);

  async function get(route, query, kind) {
    const answer = await fetch(address(route, query), { credentials: "same-origin" });
    if (!answer.ok) throw new Error(route + ": " + (await answer.text()));
    return kind === "tile" ? decode(await answer.arrayBuffer()) : answer.json();
  }

  /* Without a pause for anything else: a page that is about to be printed cannot wait. Bytes come as the low halves of characters. */
  function getNow(route, query) {
    const asked = new XMLHttpRequest();
    asked.open("GET", address(route, query), false);
    asked.overrideMimeType("text/plain; charset=x-user-defined");
    asked.send();
    if (asked.status !== 200) throw new Error(route + ": " + asked.responseText);
    return decode(Uint8Array.from(asked.responseText, (c) => c.charCodeAt(0) & 255).buffer);
  }

  const view = (of, lanes, lo, hi, bins) => ({ ...of, lanes: ranges(lanes), lo: Math.round(lo), hi: Math.round(hi), bins });

  /* `of` is {run, expanded}: the run, and the ranks whose operators are lanes too. */
  ddprof.timelineData = {
    lanes: (of, ranks) => get("lanes", { ...of, ranks: ranks || "" }),
    tile: (...asked) => get("tile", view(...asked), "tile"),
    tileNow: (...asked) => getNow("tile", view(...asked)),
    slice: (of, row) => get("slice", { ...of, row }),
    statistics: (of, lanes, lo, hi) => get("statistics", { ...of, lanes: ranges(lanes), lo: Math.round(lo), hi: Math.round(hi) }),
    search: (of, text) => get("search", { ...of, text }),
    waits: (of, lo, hi) => get("waits", { ...of, lo: Math.round(lo), hi: Math.round(hi) }),
    path: (of) => get("path", of),
  };
  ddprof.decodeTile = decode;
})();

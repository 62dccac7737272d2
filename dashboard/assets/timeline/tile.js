/* A tile: one view of the timeline as typed arrays (layout: dashboard/timeline/tiles.py). */
ddprof.decodeTile = (buffer) => {
  const bytes = new Uint8Array(buffer);
  if (String.fromCharCode(...bytes.subarray(0, 4)) !== "DDT1") throw new Error("not a timeline tile");
  const length = new DataView(buffer).getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const take = taker(buffer, 8 + length);
  const lanes = new Map([...exact(header, take), ...binned(header, take)]);
  return { lo: header.lo_ns, hi: header.hi_ns, bins: header.bins, names: header.names, lanes };
};

/* Reads one array after the other. */
function taker(buffer, from) {
  let at = from;
  return (Type, count) => {
    const view = new Type(buffer, at, count);
    at += count * Type.BYTES_PER_ELEMENT;
    return view;
  };
}

/* [lane, its slices], of lanes whose slices are sent one by one. */
function exact(header, take) {
  const total = header.counts.reduce((a, b) => a + b, 0);
  const start = take(Float32Array, total);
  const dur = take(Float32Array, total);
  const name = take(Uint32Array, total);
  const row = take(Uint32Array, total);
  const category = take(Uint8Array, total);
  take(Uint8Array, (8 - (total % 8)) % 8); // the arrays that follow begin at a multiple of 8
  let first = 0;
  return header.exact.map((lane, i) => {
    const last = first + header.counts[i];
    const slices = sorted({ start, dur, name, row, category }, first, last);
    first = last;
    return [lane, slices];
  });
}

/* The server sends a lane category by category; drawing and stepping through slices want time order. */
function sorted(all, first, last) {
  const order = Array.from({ length: last - first }, (_, i) => first + i).sort((a, b) => all.start[a] - all.start[b]);
  const pick = ([key, values]) => [key, values.constructor.from(order, (i) => values[i])];
  return Object.fromEntries(Object.entries(all).map(pick));
}

/* [lane, what fills each bin], of lanes with too many slices. */
function binned(header, take) {
  const count = header.binned.length * header.bins;
  const category = take(Uint8Array, count);
  const share = take(Uint8Array, count);
  const cut = (values, i) => values.subarray(i * header.bins, (i + 1) * header.bins);
  return header.binned.map((lane, i) => [lane, { bins: true, category: cut(category, i), share: cut(share, i) }]);
}

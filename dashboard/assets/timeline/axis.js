/* The time axis: where it is on the canvas, its ticks, and times in words. */
ddprof.AXIS = 26; // px: height of the axis above the rows
ddprof.GUTTER = window.innerWidth < 600 ? 110 : 190; // px: width of the labels left of the lanes; less on a telephone
const TICK_PX = 120; // at least between two ticks

ddprof.time = (us) => {
  const size = Math.abs(us);
  const digits = (v) => (Math.abs(v) >= 100 ? v.toFixed(0) : Math.abs(v) >= 10 ? v.toFixed(1) : v.toFixed(2));
  if (size >= 1e6) return digits(us / 1e6) + " s";
  if (size >= 1e3) return digits(us / 1e3) + " ms";
  return size >= 1 || size === 0 ? digits(us) + " µs" : (us * 1e3).toFixed(0) + " ns";
};

/* Ticks of [lo, hi] ns on `width` px, each with its label, which has as many decimals as the distance needs. */
ddprof.ticks = (lo, hi, width) => {
  const raw = ((hi - lo) / Math.max(1, width)) * TICK_PX;
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
  const [scale, unit] = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 1e2 ? [1e3, "µs"] : [1, "ns"];
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9));
  const found = [];
  for (let t = Math.ceil(lo / step) * step; t <= hi; t += step)
    found.push([t, (t / scale).toFixed(decimals) + " " + unit]);
  return found;
};

/* Painting the slices of a lane, or what fills each bin where they are merged. */
const { GUTTER, Painter } = ddprof;
const TEXTURE_FROM = 4; // px: width of a slice with a texture
const LETTERS_FROM = 14; // px: width of a slice with words
const LETTERS_TALL = 11; // px: height of a slice with words
const LEAST_ROOM = 8; // px for a letter
const NAME_FROM = 44; // px for a name
const IDLE = 3; // px: height of the line over idle time
const DIM = 0.2; // opacity of what a search does not match

Object.assign(Painter.prototype, {
  lane(row) {
    const tile = this.state.tile;
    const data = tile && tile.lanes.get(row.lane);
    if (!data) return;
    if (data.bins) this.binned(row, data, tile);
    else this.exact(row, data, tile);
  },

  binned(row, data, tile) {
    const pen = this.context;
    const step = (tile.hi - tile.lo) / tile.bins;
    for (let i = 0; i < tile.bins; i++) {
      if (!data.share[i]) continue;
      const x = this.x(tile.lo + i * step, row.rank);
      const next = this.x(tile.lo + (i + 1) * step, row.rank);
      if (next < GUTTER || x > this.state.width) continue;
      pen.globalAlpha = Math.max(0.25, data.share[i] / 255);
      pen.fillStyle = this.fill[data.category[i]];
      const height = this.isIdle(row, data.category[i]) ? IDLE : row.height - 2;
      pen.fillRect(x, row.y + 1, Math.max(1, next - x), height);
    }
    pen.globalAlpha = 1;
  },

  /* Of slices of one kind that begin in the same pixel and end in it, the first is enough. */
  exact(row, data, tile) {
    const s = this.state;
    const scale = ((s.width - GUTTER) * 1e3) / (s.hi - s.lo);
    const origin = this.x(tile.lo, row.rank);
    let column = -1;
    let painted = -1;
    for (let i = 0; i < data.start.length; i++) {
      const x = origin + data.start[i] * scale;
      const width = data.dur[i] * scale;
      const kind = data.category[i];
      if (x + width < GUTTER || x > s.width) continue;
      if (width < 1 && Math.floor(x) === column && kind === painted) continue;
      column = Math.floor(x);
      painted = kind;
      this.slice(row, data, tile, i, x, width);
    }
    this.context.globalAlpha = 1;
  },

  /* Where nothing runs on the device there is nothing to fill: only a line says what it is idle for. */
  isIdle(row, category) {
    const s = this.state;
    return s.info.categories[category].idle && s.laneAt(row.lane).kind === "causes";
  },

  slice(row, data, tile, i, x, width) {
    const s = this.state;
    const pen = this.context;
    const kind = data.category[i];
    const y = row.y + 1;
    const isIdle = this.isIdle(row, kind);
    const height = isIdle ? IDLE : row.height - 2;
    const opacity = s.dims(row.lane, data.row[i]) ? DIM : 1;
    pen.globalAlpha = opacity;
    pen.fillStyle = this.fill[kind];
    pen.fillRect(x, y, Math.max(1, width > 3 ? width - 0.5 : width), height);
    if (width > TEXTURE_FROM && this.texture[kind]) {
      pen.globalAlpha = opacity * 0.55;
      pen.fillStyle = this.texture[kind];
      pen.fillRect(x, y, width - 0.5, height);
      pen.globalAlpha = opacity;
    }
    if (width > LETTERS_FROM && row.height - 2 > LETTERS_TALL)
      this.caption(row, tile.names[data.name[i]] || "", x, width, kind);
    if (s.selected !== data.row[i]) return;
    pen.globalAlpha = 1;
    pen.strokeStyle = this.ink.text;
    pen.lineWidth = 2;
    pen.strokeRect(x, y, Math.max(2, width), height);
    pen.lineWidth = 1;
  },

  /* The name on a slice, or its kind's letter; on a texture they get a plain ground. */
  caption(row, name, x, width, kind) {
    const pen = this.context;
    const left = Math.max(x, GUTTER) + 4;
    const room = Math.min(x + width, this.state.width) - left - 4;
    const words = room >= NAME_FROM ? name : this.state.info.categories[kind].letter;
    if (room < LEAST_ROOM) return;
    if (this.texture[kind]) {
      pen.fillStyle = this.fill[kind];
      pen.fillRect(left - 2, row.y + 2, Math.min(room, this.wide(words)) + 4, row.height - 4);
    }
    const { pale } = this.state.info.categories[kind];
    pen.fillStyle = this.isIdle(row, kind) ? this.ink.quiet : pale ? this.ink.text : this.ink.onBar;
    this.text(words, left, row.y + row.height / 2, room);
  },
});

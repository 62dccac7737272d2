/* Marks with notes: set at a moment, listed below the picture, kept in the link. */
const { button, element, time, Timeline } = ddprof;
const LINK_AFTER_MS = 300; // that nobody types
const kept = new Map(); // run -> its notes, for a reader who goes to another page and back

Object.assign(Timeline.prototype, {
  buildNotes() {
    this.noteList = element("ol", "", { class: "tl-notes", "aria-label": "Marks" });
    return this.noteList;
  },

  /* The notes of the address, else those that were set before on this page. */
  readNotes() {
    const [first, last] = this.runBounds;
    const isOf = (note) => note.at >= first && note.at <= last;
    const read = ddprof.noteLink.read(window.location.hash);
    this.notes = read ? read.filter(isOf) : kept.get(this.config.run) || [];
    if (read && this.notes.length < read.length)
      this.tell(`${read.length - this.notes.length} of the link's marks are not in this run`);
    this.changeNotes();
  },

  changeNotes() {
    kept.set(this.config.run, this.notes);
    this.listNotes();
    this.linkNotes();
    this.paint();
  },

  linkNotes() {
    const { location, history } = window;
    const hash = ddprof.noteLink.write(location.hash, this.notes, this.info.fixed);
    if (hash !== location.hash) history.replaceState(history.state, "", location.pathname + location.search + hash);
  },

  pointNotes(x, row) {
    const rank = row && !row.isHost ? row.rank : null;
    this.pointerAt = x > ddprof.GUTTER ? [this.ns(x) + (rank === null ? 0 : this.since(rank)), rank] : null;
  },

  /* Where a mark is set: under the pointer, at the chosen range, at the chosen slice, else in the middle. */
  notePlace() {
    if (this.pointerAt) return this.pointerAt;
    const row = this.activeRow();
    const rank = row ? row.rank : null;
    const known = rank === null && this.isFolded ? this.ranks()[0] : rank;
    const since = known === null ? 0 : this.since(known);
    if (this.range) return [this.range[0] + since, known];
    const data = row && this.tile && this.tile.lanes.get(row.lane);
    const at = data && !data.bins ? data.row.indexOf(this.selected) : -1;
    if (at >= 0) return [this.tile.lo + data.start[at] * 1e3, rank];
    return [(this.lo + this.hi) / 2 + since, known];
  },

  addNote() {
    const [at, rank] = this.notePlace();
    const note = { at: Math.round(at), rank, text: "" };
    const notes = [...this.notes, note].sort((a, b) => a.at - b.at);
    if (!ddprof.noteLink.fits(notes)) return this.tell("The link holds no more marks: remove one first.");
    this.notes = notes;
    this.changeNotes();
    this.tell(`mark ${notes.indexOf(note) + 1} at ${time(note.at / 1e3)}: type a note, Enter leads back`);
    return this.noteList.querySelectorAll("input")[notes.indexOf(note)].focus();
  },

  listNotes() {
    const lines = this.notes.map((note, i) => this.noteLine(note, i + 1));
    const copy = button("Copy link", { "aria-label": "Copy the link with these marks" }, () => this.copyLink());
    const last = element("li", [copy], { class: "tl-note-link" });
    this.noteList.replaceChildren(...lines, ...(lines.length ? [last] : []));
  },

  noteLine(note, number) {
    const where = `${time(note.at / 1e3)}${note.rank === null ? "" : ` · rank ${note.rank}`}`;
    const shown = { "aria-label": `Show mark ${number}, ${where}` };
    const go = button(`⚑ ${number} · ${where}`, shown, () => this.showNote(note));
    const label = { "aria-label": `Note of mark ${number}`, placeholder: "note", maxlength: ddprof.noteLink.chars };
    const field = element("input", "", { type: "text", ...label });
    field.value = note.text;
    field.addEventListener("input", () => this.writeNote(note, field));
    field.addEventListener("keydown", (e) => e.key === "Enter" && this.canvas.focus());
    const remove = button("Remove", { "aria-label": `Remove mark ${number}` }, () => {
      this.notes = this.notes.filter((other) => other !== note);
      this.changeNotes();
      this.canvas.focus();
    });
    return element("li", [go, field, remove]);
  },

  writeNote(note, field) {
    const before = note.text;
    note.text = field.value;
    if (!ddprof.noteLink.fits(this.notes)) {
      note.text = field.value = before;
      this.tell("The link holds no more text.");
    }
    this.paint();
    clearTimeout(this.noteLinked);
    this.noteLinked = setTimeout(() => this.linkNotes(), LINK_AFTER_MS);
  },

  showNote(note) {
    this.unfold();
    const half = (this.hi - this.lo) / 2;
    this.show(note.at - half, note.at + half);
    if (note.rank !== null) this.reveal(note.rank);
    this.canvas.focus();
  },

  async copyLink() {
    this.link();
    this.linkNotes();
    try {
      await navigator.clipboard.writeText(window.location.href);
      this.tell("The link is copied: it holds the view and the marks.");
    } catch {
      this.tell("Copy the link from the browser's address field: it holds the view and the marks.");
    }
  },
});

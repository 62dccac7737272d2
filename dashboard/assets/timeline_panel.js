/* What the timeline says below the picture: a slice, a selected range, a lane as a table. */
(function () {
  "use strict";
  const ddprof = window.ddprof, element = ddprof.element;

  Object.assign(ddprof.Timeline.prototype, {
    async describe(row, pinned) {
      const details = await ddprof.timelineData.slice(this.source(), row);
      if (!pinned && row !== this.hover) return;
      this.details = details;
      if (pinned) this.pinned = details; // its arrows stay when the pointer moves on
      const lines = [details.name, `${details.category} · rank ${details.rank} · ${details.lane}`, `${ddprof.time(details.dur_us)} at ${ddprof.time(details.start_us)}`, ...details.facts];
      this.tip.replaceChildren(...lines.map((line) => element("div", line)));
      if (pinned) this.pin(details, lines);
      this.paint();
    },

    pin(details, lines) {
      const rows = details.members.map((m) => ["rank " + m.rank + (m.late ? " (last to arrive)" : ""), ddprof.time(m.start_us), ddprof.time(m.ready_us - m.start_us), ddprof.time(m.end_us - m.ready_us)]);
      this.panel.replaceChildren(element("h3", lines[0]), ...lines.slice(1).map((l) => element("div", l)));
      if (rows.length) this.panel.append(this.table("The same collective on every rank", ["rank", "arrives", "waits", "moves data"], rows));
      this.say.textContent = lines.join(". ");
    },

    table(title, heads, rows) {
      const table = element("table"), top = element("tr");
      heads.forEach((h) => top.append(element("th", h, { scope: "col" })));
      table.append(element("caption", title), top);
      rows.forEach((cells) => { const tr = element("tr"); cells.forEach((c, i) => tr.append(element("td", c, i ? {} : { class: "text" }))); table.append(tr); });
      const scroll = element("div", "", { class: "scroll", tabindex: "0", role: "region", "aria-label": title });
      scroll.append(table);
      return scroll;
    },

    async statistics() {
      const lanes = this.rows.filter((r) => r.lane !== undefined).map((r) => r.lane);
      const found = await ddprof.timelineData.statistics(this.source(), lanes, this.range[0], this.range[1]);
      const parts = found.parts.map((p) => [`rank ${p.rank} · ${p.lane}`, p.category, ddprof.time(p.busy_us), (p.share * 100).toFixed(1) + " %"]);
      const names = found.names.map((n) => [n.name, String(n.count), ddprof.time(n.total_us)]);
      this.say.textContent = `Selected ${ddprof.time(found.span_us)}`;
      this.panel.replaceChildren(element("h3", "Selected " + ddprof.time(found.span_us)), this.table("What takes the time", ["name", "slices", "time"], names), this.table("Busy time by lane", ["lane", "what", "time", "share"], parts));
    },

    list() {
      const data = this.tile && this.tile.lanes.get(this.activeLane);
      const row = this.rows.find((r) => r.lane === this.activeLane);
      if (!row) { this.say.textContent = "Choose a lane first: click one, or use the arrow keys."; return; }
      if (!data || data.bins) { this.say.textContent = this.info.fixed ? "This file holds the slices of this lane merged." : "Too many slices in view to list: zoom in first."; return; }
      const lines = Array.from(data.start, (start, i) => [this.tile.names[data.name[i]], this.info.categories[data.category[i]].words, ddprof.time(start + this.tile.lo / 1e3), ddprof.time(data.dur[i])]);
      this.panel.replaceChildren(this.table(`rank ${row.rank} · ${row.label}: ${lines.length} slices, the first 500`, ["name", "what", "starts", "takes"], lines.slice(0, 500)));
    },
  });
})();

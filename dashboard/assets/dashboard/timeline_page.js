/* The Timeline page: made anew whenever Dash puts its configuration into the document. */
async function mount(config) {
  const root = document.getElementById("timeline-root");
  if (!config || !root) return "";
  if (ddprof.timeline) ddprof.timeline.close();
  try {
    const both = config.beside ? { beside: config.beside } : {};
    const info = await ddprof.timelineData.lanes({ run: config.run, expanded: "", ...both }, config.ranks);
    ddprof.timeline = new ddprof.Timeline(root, config, info);
  } catch (error) {
    root.replaceChildren(ddprof.element("p", String(error.message), { role: "alert" }));
  }
  return "";
}

ddprof.callbacks.mount = mount;

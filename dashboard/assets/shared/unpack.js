/* Data that a page holds compressed, as text in a script element that no browser runs. */
/* The bytes of the element with an id. */
ddprof.unpacked = async (id) => {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
};

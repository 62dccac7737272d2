/* Data that a page holds compressed, as text in a script element that no browser runs. */
/* The bytes of the element with an id. */
ddprof.unpacked = async (id) => {
  const text = atob(document.getElementById(id).textContent);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i); // ten times as fast as Uint8Array.from
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
};

/* The hatching of waiting for others, which differs from all else not by colour alone. */
const SIDE = 6; // px of the tile
const STROKES = [
  [-1, 7, 7, -1],
  [-1, 1, 1, -1],
  [5, 7, 7, 5],
]; // from (x, y) to (x, y)

ddprof.hatching = (context, ink) => {
  const tile = document.createElement("canvas");
  tile.width = tile.height = SIDE;
  const pen = tile.getContext("2d");
  pen.strokeStyle = pen.fillStyle = ink;
  pen.lineWidth = 1.2;
  pen.beginPath();
  STROKES.forEach(([x1, y1, x2, y2]) => {
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
  });
  pen.stroke();
  return context.createPattern(tile, "repeat");
};

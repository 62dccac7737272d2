/* Textures: waiting, loading and copying differ not by colour alone. */
(function () {
  "use strict";
  /* Strokes from (x, y) to (x, y) on a tile of SIDE px. */
  const SIDE = 6;
  const STROKES = {
    hatch: [
      [-1, 7, 7, -1],
      [-1, 1, 1, -1],
      [5, 7, 7, 5],
    ],
    lines: [[3, 0, 3, 6]],
    cross: [
      [0, 3, 6, 3],
      [3, 0, 3, 6],
    ],
    dots: [],
  };

  window.ddprof.texture = (context, kind, ink) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = SIDE;
    const pen = tile.getContext("2d");
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = 1.2;
    pen.beginPath();
    STROKES[kind].forEach(([x1, y1, x2, y2]) => {
      pen.moveTo(x1, y1);
      pen.lineTo(x2, y2);
    });
    pen.stroke();
    if (kind === "dots") pen.fillRect(2, 2, 2, 2);
    return context.createPattern(tile, "repeat");
  };
})();

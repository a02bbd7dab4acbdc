// The map of right and wrong: angles across; a band for each dy; in it a row for each dx.

const GUTTER = 62;
const ABOVE = 7;
const BELOW = 34;

function mapLayout(set, width) {
  const rows = set.dx.length * set.dy.length;
  const rowHeight = rows > 40 ? Math.max(2, 250 / rows) : 7;
  const gap = set.dy.length > 1 ? 6 : 0;
  const band = set.dx.length * rowHeight + gap;
  return {
    rowHeight,
    band,
    cell: (width - GUTTER - 4) / set.angle.length,
    height: ABOVE + set.dy.length * band - gap + BELOW,
  };
}

function cellBox(layout, [i, j, k]) {
  return {
    x: GUTTER + k * layout.cell,
    y: ABOVE + j * layout.band + i * layout.rowHeight,
    width: layout.cell,
    height: layout.rowHeight,
  };
}

// Which pose lies under a point of the map; undefined outside.
function poseUnder(set, layout, x, y) {
  const k = Math.floor((x - GUTTER) / layout.cell);
  const j = Math.floor((y - ABOVE) / layout.band);
  const i = Math.floor((y - ABOVE - j * layout.band) / layout.rowHeight);
  const inside = (place, axis) => place >= 0 && place < axis.length;
  return inside(i, set.dx) && inside(j, set.dy) && inside(k, set.angle) ? [i, j, k] : undefined;
}

function drawMap(canvas, set, isWrong, here, worst) {
  const width = canvas.clientWidth;
  const layout = mapLayout(set, width);
  const scale = devicePixelRatio || 1;
  canvas.style.height = `${layout.height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(layout.height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const [right, wrong, ink, edge, raised] = colours("right", "wrong", "ink", "edge", "raised");
  const seam = layout.rowHeight > 4 ? 0.75 : 0;
  for (let i = 0; i < set.dx.length; i++) {
    for (let j = 0; j < set.dy.length; j++) {
      for (let k = 0; k < set.angle.length; k++) {
        const box = cellBox(layout, [i, j, k]);
        pen.fillStyle = isWrong(i, j, k) ? wrong : right;
        pen.fillRect(box.x, box.y, box.width - seam, box.height - seam);
      }
    }
  }
  drawLabels(pen, set, layout, edge);
  const worstFill = isWrong(...worst) ? wrong : right;
  drawHere(pen, cellBox(layout, here), ink, raised);
  drawWorst(pen, cellBox(layout, worst), ink, raised, worstFill);
  return layout;
}

function drawLabels(pen, set, layout, colour) {
  pen.fillStyle = colour;
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  const every = Math.ceil(14 / layout.band);
  set.dy.forEach((dy, j) => {
    if (j % every) return;
    const side = dy < 0 ? "up" : "down";
    const text = dy === 0 ? "level" : `${number(Math.abs(dy))} ${side}`;
    const middle = ABOVE + j * layout.band + (set.dx.length * layout.rowHeight) / 2;
    pen.fillText(text, GUTTER - 7, middle);
  });
  const bottom = layout.height - BELOW;
  pen.textBaseline = "alphabetic";
  const last = set.angle.length - 1;
  const ticks = [...new Set([0, Math.round(last / 2), last])];
  for (const k of ticks) {
    pen.textAlign = k === 0 && last ? "left" : k === last && last ? "right" : "center";
    const offset = k === 0 && last ? 0 : k === last && last ? layout.cell : layout.cell / 2;
    pen.fillText(`${signed(set.angle[k])}°`, GUTTER + k * layout.cell + offset, bottom + 13);
  }
  pen.textAlign = "left";
  pen.fillText("px", 2, bottom + 13);
  pen.textAlign = "center";
  const middle = GUTTER + ((last + 1) * layout.cell) / 2;
  pen.fillText("← clockwise     counter-clockwise →", middle, bottom + 28);
}

function drawHere(pen, box, ink, raised) {
  pen.lineWidth = 4;
  pen.strokeStyle = raised;
  pen.strokeRect(box.x - 1.5, box.y - 1.5, box.width + 2.2, box.height + 2.2);
  pen.lineWidth = 2;
  pen.strokeStyle = ink;
  pen.strokeRect(box.x - 1.5, box.y - 1.5, box.width + 2.2, box.height + 2.2);
}

function drawWorst(pen, box, ink, raised, fill) {
  const [x, y, reach] = [box.x + box.width / 2, box.y + box.height / 2, 6.5];
  pen.beginPath();
  pen.moveTo(x, y - reach);
  pen.lineTo(x + reach, y);
  pen.lineTo(x, y + reach);
  pen.lineTo(x - reach, y);
  pen.closePath();
  pen.lineWidth = 4.5;
  pen.strokeStyle = raised;
  pen.stroke();
  pen.fillStyle = fill;
  pen.fill();
  pen.lineWidth = 1.75;
  pen.strokeStyle = ink;
  pen.stroke();
}

// The map of right and wrong: one axis across, one down, and of three axes one in bands. Of more, the
// others are where the sliders are.

const ABOVE = 7;
const BELOW = 34;

// The axes that vary over the grid; where none does, the first.
function varying({ counts }) {
  const columns = counts.map((_, column) => column).filter((column) => counts[column] > 1);
  return columns.length ? columns : [0];
}

// Which axis goes which way: that of most values across; of three, the second of the others in bands.
function chooseMap(set) {
  const columns = varying(set);
  const [across, next] = columns.toSorted((a, b) => set.counts[b] - set.counts[a]);
  const [first, second, ...more] = columns.filter((column) => column !== across);
  return more.length ? { across, down: next } : { across, down: first, bands: second };
}

// An axis that is not drawn is as one of a single value.
function mapLayout(set, map, width) {
  const count = (column) => (column === undefined ? 1 : set.counts[column]);
  const [columns, rows, bands] = [map.across, map.down, map.bands].map(count);
  const gutter = map.down === undefined ? 4 : 66;
  const gap = bands > 1 ? 6 : 0;
  const rowHeight = bands > 1 ? 7 : clamp(120 / rows, 7, 24);
  const fits = rows * bands > 40 ? Math.max(2, 250 / (rows * bands)) : rowHeight;
  const band = rows * fits + gap;
  return {
    ...{ map, columns, rows, bands, gutter, band, rowHeight: fits },
    cell: (width - gutter - 4) / columns,
    height: ABOVE + bands * band - gap + BELOW,
  };
}

function cellBox(layout, at) {
  const { across, down, bands } = layout.map;
  return {
    x: layout.gutter + at[across] * layout.cell,
    y: ABOVE + (at[bands] ?? 0) * layout.band + (at[down] ?? 0) * layout.rowHeight,
    width: layout.cell,
    height: layout.rowHeight,
  };
}

// The place on the grid that has these places on the map, and is elsewhere where one is.
function placed({ across, down, bands }, here, column, row, band) {
  return here.map((place, axis) => ({ [across]: column, [down]: row, [bands]: band })[axis] ?? place);
}

// Which pose lies under a point of the map; undefined outside.
function poseUnder(layout, here, x, y) {
  const column = Math.floor((x - layout.gutter) / layout.cell);
  const band = Math.floor((y - ABOVE) / layout.band);
  const row = Math.floor((y - ABOVE - band * layout.band) / layout.rowHeight);
  const inside = (place, count) => place >= 0 && place < count;
  return inside(column, layout.columns) && inside(row, layout.rows) && inside(band, layout.bands)
    ? placed(layout.map, here, column, row, band)
    : undefined;
}

function drawMap(canvas, set, map, isWrong, here, worst) {
  const width = canvas.clientWidth;
  const layout = mapLayout(set, map, width);
  const scale = devicePixelRatio || 1;
  canvas.style.height = `${layout.height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(layout.height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const [right, wrong, ink, edge, raised] = colours("right", "wrong", "ink", "edge", "raised");
  const seam = layout.rowHeight > 4 ? 0.75 : 0;
  for (let band = 0; band < layout.bands; band++) {
    for (let row = 0; row < layout.rows; row++) {
      for (let column = 0; column < layout.columns; column++) {
        const at = placed(map, here, column, row, band);
        const box = cellBox(layout, at);
        pen.fillStyle = isWrong(at) ? wrong : right;
        pen.fillRect(box.x, box.y, box.width - seam, box.height - seam);
      }
    }
  }
  drawLabels(pen, set, layout, edge);
  drawHere(pen, cellBox(layout, here), ink, raised);
  const fixed = set.axes.map((_, axis) => axis).filter((axis) => !Object.values(map).includes(axis));
  if (fixed.every((axis) => worst[axis] === here[axis])) {
    drawWorst(pen, cellBox(layout, worst), ink, raised, isWrong(worst) ? wrong : right);
  }
  return layout;
}

function drawLabels(pen, set, layout, colour) {
  const { across, down, bands } = layout.map;
  const bottom = layout.height - BELOW;
  pen.fillStyle = colour;
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  drawAcross(pen, set.axes[across], layout, bottom);
  if (down === undefined) return;
  const labelled = bands === undefined ? set.axes[down] : set.axes[bands];
  const height = bands === undefined ? layout.rowHeight : layout.band;
  const middle = bands === undefined ? height / 2 : (layout.rows * layout.rowHeight) / 2;
  const every = Math.ceil(14 / height);
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  labelled.values.forEach((value, place) => {
    if (place % every) return;
    pen.fillText(shortText(labelled, value), layout.gutter - 7, ABOVE + place * height + middle);
  });
  pen.textAlign = "left";
  pen.textBaseline = "alphabetic";
  pen.fillText(isShift(labelled) ? "px" : wordsOf(labelled).noun, 2, bottom + 13, layout.gutter - 9);
}

// A shift has its unit below the column of labels.
function shortText(axis, value) {
  if (!isShift(axis)) return valueText(axis, value);
  const { ways } = wordsOf(axis);
  return value ? `${number(Math.abs(value))} ${ways[Number(value > 0)]}` : "0";
}

function isShift(axis) {
  return axis.name === "dx" || axis.name === "dy";
}

function drawAcross(pen, axis, layout, bottom) {
  const last = axis.values.length - 1;
  for (const place of new Set([0, Math.round(last / 2), last])) {
    const side = last ? { 0: "left", [last]: "right" }[place] : undefined;
    const offset = { left: 0, right: layout.cell }[side] ?? layout.cell / 2;
    pen.textAlign = side ?? "center";
    const x = layout.gutter + place * layout.cell + offset;
    pen.fillText(valueText(axis, axis.values[place]), x, bottom + 13);
  }
  const { noun, ways } = wordsOf(axis);
  const text = ways ? `← ${ways[0]}     ${ways[1]} →` : noun;
  pen.textAlign = "center";
  pen.fillText(text, layout.gutter + (layout.columns * layout.cell) / 2, bottom + 28);
}

// What the map shows, in a sentence.
function mapText(set, { across, down, bands }) {
  const noun = (column) => wordsOf(set.axes[column]).noun;
  const columns = `A map has a column for each ${noun(across)}`;
  if (down === undefined) return `${columns}.`;
  if (bands !== undefined) {
    return `${columns}, a band for each ${noun(bands)} and, in a band, a row for each ${noun(down)}, the lowest at its top.`;
  }
  const text = `${columns} and a row for each ${noun(down)}.`;
  return varying(set).length > 2 ? `${text} All else is as the sliders say.` : text;
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

// Training time against grid accuracy: a mark for each method, named on hover and focus.

const MARKS = [
  "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0",
  "M-5-5H5V5H-5Z",
  "M0-6L6 5H-6Z",
  "M0-7L6 0L0 7L-6 0Z",
  "M0 6L6-5H-6Z",
  "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
];

// Told apart by colour or by shape, and many of them by both.
function lookOf(series) {
  const place = series % MARKS.length;
  const shape = MARKS[(place + Math.floor(series / MARKS.length)) % MARKS.length];
  return { colour: `var(--series-${place + 1})`, shape };
}

function timeUnit(longest) {
  if (longest >= 5400) return ["hours", 3600];
  return longest >= 90 ? ["minutes", 60] : ["seconds", 1];
}

// Round steps of 1, 2 or 5 times a power of ten, about so many of them.
function ticksOf(low, high, about) {
  const rough = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
  const first = Math.ceil(low / step);
  const count = Math.floor(high / step) - first + 1;
  return Array.from({ length: count }, (_, i) => (first + i) * step);
}

function drawChart(runs) {
  const chart = byId("chart");
  const width = Math.max(280, chart.clientWidth);
  const height = clamp(width * 0.5, 260, 440);
  const pad = { left: 46, right: 14, top: 14, bottom: 44 };
  const [unit, seconds] = timeUnit(Math.max(...runs.map((run) => run.seconds)));
  const times = runs.map((run) => run.seconds / seconds);
  const levels = runs.map((run) => 100 * run.grid);
  const spread = Math.max(2, Math.max(...levels) - Math.min(...levels));
  const low = Math.max(0, Math.min(...levels) - 0.12 * spread);
  const high = Math.min(100, Math.max(...levels) + 0.12 * spread);
  const far = 1.08 * Math.max(...times);
  const x = (time) => pad.left + ((width - pad.left - pad.right) * time) / far;
  const y = (level) => height - pad.bottom - ((height - pad.top - pad.bottom) * (level - low)) / (high - low);

  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "group" });
  svg.setAttribute("aria-label", `Training time in ${unit} against grid accuracy in per cent`);
  for (const level of ticksOf(low, high, 5)) {
    svg.append(
      make("line", { class: "rule", x1: pad.left, x2: width - pad.right, y1: y(level), y2: y(level) }),
      make("text", { x: pad.left - 8, y: y(level) + 4, "text-anchor": "end" }, number(level)),
    );
  }
  for (const time of ticksOf(0, far, width / 110)) {
    svg.append(make("text", { x: x(time), y: height - pad.bottom + 18, "text-anchor": "middle" }, number(time)));
  }
  svg.append(
    make("text", { x: width - pad.right, y: height - 6, "text-anchor": "end" }, `training time in ${unit}`),
    make("text", { x: 2, y: 6 }, "grid-775 accuracy in %"),
  );

  const places = runs.map((run) => [run, x(run.seconds / seconds), y(100 * run.grid)]);
  svg.append(...labelsOf(places, width - pad.right));
  const families = [...new Set(runs.map((run) => run.family))];
  families.forEach((family, series) => {
    const { colour } = lookOf(series);
    const members = runs.filter((run) => run.family === family).sort((a, b) => a.tries - b.tries);
    const points = members.map((run) => `${x(run.seconds / seconds)} ${y(100 * run.grid)}`);
    svg.append(make("path", { class: "link", d: `M${points.join("L")}`, stroke: colour }));
    members.forEach((run) => svg.append(markOf(run, x(run.seconds / seconds), y(100 * run.grid), series)));
  });
  chart.replaceChildren(svg);
  byId("chart-note").textContent = "";
}

// Names beside their marks, as far as they do not run into each other or into marks.
function labelsOf(places, edge) {
  const taken = places.map(([, x, y]) => ({ left: x - 8, right: x + 8, top: y - 8, bottom: y + 8 }));
  const labels = [];
  for (const [run, x, y] of places) {
    const wide = 6.9 * run.method.length;
    const box = { left: x + 11, right: x + 11 + wide, top: y - 7, bottom: y + 7 };
    const meets = (other) =>
      box.left < other.right && box.right > other.left && box.top < other.bottom && box.bottom > other.top;
    if (box.right > edge) [box.left, box.right] = [x - 11 - wide, x - 11];
    if (taken.some(meets)) continue;
    taken.push(box);
    const anchor = box.left < x ? "end" : "start";
    const at = { x: anchor === "end" ? box.right : box.left, y: y + 4, "text-anchor": anchor };
    labels.push(make("text", { class: "name", "aria-hidden": "true", ...at }, run.method));
  }
  return labels;
}

function markOf(run, x, y, series) {
  const [unit, seconds] = timeUnit(run.seconds);
  const spread = run.stderr === null ? "" : ` ± ${(100 * run.stderr).toFixed(2)}`;
  const text =
    `${run.method}\ngrid-775 ${(100 * run.grid).toFixed(2)}${spread} %, natural ` +
    `${(100 * run.natural).toFixed(2)} %\n${(run.seconds / seconds).toFixed(1)} ${unit}, ` +
    `${run.seeds} seed${run.seeds === 1 ? "" : "s"}, on ${run.hardware}\n${run.setting}`;
  const { colour, shape } = lookOf(series);
  const mark = make(
    "g",
    { class: "mark", transform: `translate(${x} ${y})`, tabindex: 0, role: "img" },
    make("circle", { class: "halo", r: 16, fill: colour }),
    make("path", { d: shape, fill: colour }),
  );
  mark.setAttribute("aria-label", text.replaceAll("\n", "; "));
  const show = () => {
    const box = mark.getBoundingClientRect();
    showTip(text, box.left + box.width / 2, box.top + 8, show);
    byId("chart-note").textContent = text.replaceAll("\n", "; ");
  };
  mark.addEventListener("pointerenter", show);
  mark.addEventListener("focus", show);
  mark.addEventListener("pointerleave", hideTip);
  mark.addEventListener("blur", hideTip);
  return mark;
}

if (data.runs.length) {
  const names = [...new Set(data.runs.map((run) => run.dataset))];
  const choice = byId("chart-set");
  names.forEach((name) => choice.append(make("option", {}, name)));
  byId("chart-choice").hidden = names.length < 2;
  const draw = () => drawChart(data.runs.filter((run) => run.dataset === choice.value));
  choice.addEventListener("change", draw);
  repaint(draw);
  draw();
}

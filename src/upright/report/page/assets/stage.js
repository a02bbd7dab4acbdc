// The stage: the picture that is dragged, the dial that turns it, sliders and keys.

// Radius of the dial; the longer side of the picture is 152.
const DIAL = 95;

function makeStage(explorer) {
  const picture = byId("picture");
  const knob = make("circle", { class: "knob", r: 7 });
  let sliders = [];
  const move = (values) => {
    const pose = explorer.shown().slice();
    for (const [name, value] of Object.entries(values)) pose[explorer.set.column(name)] = value;
    explorer.moveTo(pose);
  };
  dragging(knob, (event) => {
    const box = picture.getBoundingClientRect();
    const x = event.clientX - box.left - box.width / 2;
    const y = event.clientY - box.top - box.height / 2;
    move({ angle: (Math.atan2(-x, -y) * 180) / Math.PI });
  });
  dragging(picture, (event, began, start) => {
    if (!canShift(explorer.set)) return;
    const { seen, scale: held } = explorer.set;
    const scale = seen.width / held / picture.clientWidth;
    const [fromX, fromY] = ["dx", "dy"].map((name) => start[explorer.set.column(name)]);
    const dx = fromX + (event.clientX - began.clientX) * scale;
    const dy = fromY + (event.clientY - began.clientY) * scale;
    move({ dx, dy });
  });
  listenToKeys(picture, explorer);

  function dragging(node, onMove) {
    node.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      node.setPointerCapture(event.pointerId);
      const start = explorer.shown();
      const moved = (next) => onMove(next, event, start);
      node.addEventListener("pointermove", moved);
      const stop = () => node.removeEventListener("pointermove", moved);
      node.addEventListener("lostpointercapture", stop, { once: true });
    });
  }

  // Fit the controls to the space of the images.
  function open() {
    const { set } = explorer;
    sliders = inOrder(set).map((column) => makeSlider(set.axes[column], column, move));
    const nodes = sliders.flatMap(({ label, input, output }) => [label, input, output]);
    byId("sliders").replaceChildren(...nodes);
    byId("stage").classList.toggle("turns", canTurn(set));
    byId("stage").classList.toggle("shifts", canShift(set));
    if (canTurn(set)) drawDial(set.axes[set.column("angle")].values, knob);
    const { height, width } = set.seen;
    picture.style.setProperty("--aspect", width / height);
    for (const place of ["stage", "thumbs"]) byId(place).classList.toggle("fine", isFine(set));
    byId("keys").replaceChildren(...keysText(set));
    fit();
  }

  function fit() {
    for (const { axis, input } of sliders) {
      const [low, high] = [axis.values[0], axis.values[axis.values.length - 1]];
      const steps = explorer.snaps() ? axis.values.length - 1 : 200;
      input.min = low;
      input.max = high;
      input.step = (high - low) / steps || 1;
      input.disabled = axis.values.length < 2;
    }
  }

  function show(pose) {
    const { set } = explorer;
    paintImage(picture, set.pixelsOf(explorer.image), set.shape, pose, set);
    for (const { axis, column, input, output } of sliders) {
      input.value = pose[column];
      output.textContent = valueText(axis, pose[column]);
      input.setAttribute("aria-valuetext", axisText(axis, pose[column]));
    }
    if (!canTurn(set)) return;
    const [x, y] = onDial(pose[set.column("angle")], DIAL);
    knob.setAttribute("cx", x);
    knob.setAttribute("cy", y);
  }

  return { open, fit, show };
}

// Whether single pixels are too small to be looked at.
function isFine({ seen }) {
  return Math.max(seen.height, seen.width) > 96;
}

function canShift(set) {
  return set.column("dx") >= 0;
}

function canTurn(set) {
  return set.column("angle") >= 0;
}

function makeSlider(axis, column, move) {
  const id = `axis-${axis.name}`;
  const input = make("input", { id, type: "range" });
  input.addEventListener("input", () => move({ [axis.name]: Number(input.value) }));
  const label = make("label", { for: id }, wordsOf(axis).title);
  return { axis, column, label, input, output: make("output", { for: id }) };
}

function onDial(angle, radius) {
  const turn = (-angle * Math.PI) / 180;
  return [radius * Math.sin(turn), -radius * Math.cos(turn)];
}

function drawDial(angles, knob) {
  const [low, high] = [angles[0], angles[angles.length - 1]];
  const along = Array.from({ length: 61 }, (_, i) => onDial(low + ((high - low) * i) / 60, DIAL));
  const arc = make("path", { class: "arc", d: `M${along.map((p) => p.join(" ")).join("L")}` });
  const ticks = [...new Set([low, 0, high])].map((angle) => {
    const [[x1, y1], [x2, y2]] = [onDial(angle, DIAL - 3), onDial(angle, DIAL + 3)];
    const [x, y] = onDial(angle, DIAL + 10);
    const text = make("text", { x, y: y + 2 }, `${signed(angle)}°`);
    return make("g", {}, make("line", { class: "tick", x1, y1, x2, y2 }), text);
  });
  byId("dial").replaceChildren(arc, ...ticks, knob);
}

function listenToKeys(picture, explorer) {
  const steps = {
    ArrowLeft: ["dx", -1],
    ArrowRight: ["dx", 1],
    ArrowUp: ["dy", -1],
    ArrowDown: ["dy", 1],
    ",": ["angle", 1],
    ".": ["angle", -1],
  };
  picture.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { set } = explorer;
    const [name, by] = steps[event.key] ?? [];
    const column = set.column(name);
    if (event.key === "Home") explorer.moveTo(set.upright);
    else if (column < 0) return;
    else {
      const place = clamp(explorer.here()[column] + by, 0, set.counts[column] - 1);
      explorer.moveTo(withValue(explorer.shown(), column, set.axes[column].values[place]));
    }
    event.preventDefault();
  });
}

function keysText(set) {
  const key = (name) => make("kbd", {}, name);
  return [
    "Keys on the picture: ",
    ...(canShift(set) ? ["arrows shift, "] : []),
    ...(canTurn(set) ? [key(","), " and ", key("."), " turn, "] : []),
    key("Home"),
    " shows it as it is.",
  ];
}

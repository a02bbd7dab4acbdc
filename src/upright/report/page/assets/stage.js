// The stage: the picture that is dragged, the dial that turns it, sliders and keys.

// Radius of the dial; the longer side of the picture is 152.
const DIAL = 95;

function makeStage(explorer) {
  const picture = byId("picture");
  const sliders = { angle: byId("angle"), dx: byId("dx"), dy: byId("dy") };
  const knob = make("circle", { class: "knob", r: 7 });
  const turnBy = (event) => {
    const box = picture.getBoundingClientRect();
    const x = event.clientX - box.left - box.width / 2;
    const y = event.clientY - box.top - box.height / 2;
    explorer.moveTo({ ...explorer.shown(), angle: (Math.atan2(-x, -y) * 180) / Math.PI });
  };
  dragging(knob, turnBy);
  dragging(picture, (event, began, start) => {
    const scale = explorer.set.shape[2] / picture.clientWidth;
    const dx = start.dx + (event.clientX - began.clientX) * scale;
    const dy = start.dy + (event.clientY - began.clientY) * scale;
    explorer.moveTo({ ...start, dx, dy });
  });
  listenToKeys(picture, explorer);
  for (const [name, slider] of Object.entries(sliders)) {
    const set = () => explorer.moveTo({ ...explorer.shown(), [name]: Number(slider.value) });
    slider.addEventListener("input", set);
  }

  function dragging(node, onMove) {
    node.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      node.setPointerCapture(event.pointerId);
      const start = explorer.shown();
      const move = (next) => onMove(next, event, start);
      node.addEventListener("pointermove", move);
      const stop = () => node.removeEventListener("pointermove", move);
      node.addEventListener("lostpointercapture", stop, { once: true });
    });
  }

  // Fit the controls to the grid of the images.
  function fit() {
    drawDial(explorer.set, knob);
    const [, height, width] = explorer.set.shape;
    picture.style.setProperty("--aspect", width / height);
    for (const [name, slider] of Object.entries(sliders)) {
      const axis = explorer.set[name];
      const steps = explorer.snaps() ? axis.length - 1 : 200;
      slider.min = axis[0];
      slider.max = axis[axis.length - 1];
      slider.step = (axis[axis.length - 1] - axis[0]) / steps || 1;
      slider.disabled = axis.length < 2;
    }
  }

  function show(pose) {
    paintImage(picture, explorer.set.pixelsOf(explorer.image), explorer.set.shape, pose);
    for (const [name, slider] of Object.entries(sliders)) {
      slider.value = pose[name];
      const unit = name === "angle" ? "°" : " px";
      slider.nextElementSibling.textContent = `${signed(pose[name])}${unit}`;
      slider.setAttribute("aria-valuetext", poseText({ ...UPRIGHT, [name]: pose[name] }));
    }
    const [x, y] = onDial(pose.angle, DIAL);
    knob.setAttribute("cx", x);
    knob.setAttribute("cy", y);
  }

  return { fit, show };
}

function onDial(angle, radius) {
  const turn = (-angle * Math.PI) / 180;
  return [radius * Math.sin(turn), -radius * Math.cos(turn)];
}

function drawDial(set, knob) {
  const [low, high] = [set.angle[0], set.angle[set.angle.length - 1]];
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
  const step = (name, steps) => () => {
    const axis = explorer.set[name];
    const place = clamp(nearest(axis, explorer.pose[name]) + steps, 0, axis.length - 1);
    explorer.moveTo({ ...explorer.shown(), [name]: axis[place] });
  };
  const keys = {
    ArrowLeft: step("dx", -1),
    ArrowRight: step("dx", 1),
    ArrowUp: step("dy", -1),
    ArrowDown: step("dy", 1),
    ",": step("angle", 1),
    ".": step("angle", -1),
    Home: () => explorer.moveTo(UPRIGHT),
  };
  picture.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
}

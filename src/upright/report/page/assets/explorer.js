// The explorer: one image, one pose, and what each chosen model answers there.

function openSet(packed) {
  const shape = packed.shape.slice(1);
  const size = shape.reduce((a, b) => a * b);
  const pixels = bytesOf(packed.images);
  const poses = packed.dx.length * packed.dy.length * packed.angle.length;
  const models = packed.models.map((model) => ({
    ...model,
    predicted: new Uint16Array(bytesOf(model.predicted).buffer),
    confidence: bytesOf(model.confidence),
  }));
  const flat = ([i, j, k]) => (i * packed.dy.length + j) * packed.angle.length + k;
  return {
    ...packed,
    shape,
    poses,
    models,
    pixelsOf: (image) => pixels.subarray(image * size, (image + 1) * size),
    answer: (model, image, at) => {
      const place = image * poses + flat(at);
      const seen = model.predicted[place];
      return { seen, right: seen === packed.labels[image], sure: model.confidence[place] / 255 };
    },
    rightPoses: (model, image) => {
      const part = model.predicted.subarray(image * poses, (image + 1) * poses);
      return part.reduce((sum, seen) => sum + (seen === packed.labels[image]), 0);
    },
    worst: (model, image) => unravel(model.worst[image], packed),
  };
}

function unravel(index, set) {
  const k = index % set.angle.length;
  const rest = (index - k) / set.angle.length;
  return [Math.floor(rest / set.dy.length), rest % set.dy.length, k];
}

function nearest(axis, value) {
  return axis.reduce((best, x, i) => (Math.abs(x - value) < Math.abs(axis[best] - value) ? i : best), 0);
}

function poseText({ dx, dy, angle }) {
  const parts = [];
  if (angle) parts.push(`${number(Math.abs(angle))}° ${angle > 0 ? "counter-clockwise" : "clockwise"}`);
  if (dx) parts.push(`${number(Math.abs(dx))} px ${dx > 0 ? "right" : "left"}`);
  if (dy) parts.push(`${number(Math.abs(dy))} px ${dy > 0 ? "down" : "up"}`);
  return parts.join(", ") || "as it is";
}

// Radius of the dial; the picture is 152 wide and high.
const DIAL = 95;

function startExplorer() {
  const sets = data.exhibitions.map(openSet);
  const picture = byId("picture");
  const sliders = { angle: byId("angle"), dx: byId("dx"), dy: byId("dy") };
  const state = { set: sets[0], image: 0, pose: { dx: 0, dy: 0, angle: 0 }, chosen: new Set() };
  let cards = [];
  let knob;

  const poseAt = ([i, j, k]) => ({
    dx: state.set.dx[i],
    dy: state.set.dy[j],
    angle: state.set.angle[k],
  });
  const here = () =>
    ["dx", "dy", "angle"].map((name) => nearest(state.set[name], state.pose[name]));
  const drawn = () => (byId("snap").checked ? poseAt(here()) : state.pose);

  function moveTo(pose) {
    for (const name of ["dx", "dy", "angle"]) {
      const axis = state.set[name];
      state.pose[name] = clamp(pose[name], axis[0], axis[axis.length - 1]);
    }
    showPose();
  }

  function stepBy(name, steps) {
    const axis = state.set[name];
    const place = clamp(nearest(axis, state.pose[name]) + steps, 0, axis.length - 1);
    moveTo({ ...state.pose, [name]: axis[place] });
  }

  function showPose() {
    const pose = drawn();
    paintImage(picture, state.set.pixelsOf(state.image), state.set.shape, pose);
    for (const [name, slider] of Object.entries(sliders)) {
      slider.value = pose[name];
      const unit = name === "angle" ? "°" : " px";
      slider.nextElementSibling.textContent = `${signed(pose[name])}${unit}`;
      slider.setAttribute("aria-valuetext", poseText({ dx: 0, dy: 0, angle: 0, [name]: pose[name] }));
    }
    const turn = (-pose.angle * Math.PI) / 180;
    knob.setAttribute("cx", DIAL * Math.sin(turn));
    knob.setAttribute("cy", -DIAL * Math.cos(turn));
    const saved = poseText(poseAt(here()));
    const free = poseText(pose) !== saved;
    byId("pose").textContent = free
      ? `Shown: ${poseText(pose)}. The answers are those of the nearest saved pose: ${saved}.`
      : `Shown, and answered: ${saved}.`;
    for (const card of cards) card.show();
    speak();
  }

  let later = 0;
  function speak() {
    clearTimeout(later);
    later = setTimeout(() => {
      byId("spoken").textContent = cards.map((card) => card.spoken()).join("; ");
    }, 500);
  }

  function showImage(image) {
    state.image = image;
    const label = state.set.classes[state.set.labels[image]];
    byId("truth").replaceChildren(
      "labelled ",
      make("b", {}, label),
      `, ${state.set.split} image ${state.set.places[image]}`,
    );
    picture.setAttribute("aria-label", `Picture labelled ${label}; drag it or use the keys`);
    [...byId("thumbs").children].forEach((thumb, place) => {
      thumb.setAttribute("aria-pressed", place === image);
    });
    showPose();
  }

  function makeCard(model) {
    const parts = {
      seen: make("b"),
      verdict: make("span", { class: "verdict" }),
      sure: make("span", { class: "sure" }),
      bar: make("i"),
      map: make("canvas", { class: "map", role: "img" }),
      tally: make("p", { class: "tally" }),
    };
    const numbers =
      `natural ${percent(model.measured.nat)}, ` +
      `${model.attack} ${percent(model.measured[model.attack])}`;
    const source = model.record ? make("a", { href: `#record-${model.record}` }, numbers) : numbers;
    const count = ` of ${model.images.toLocaleString("en")} images`;
    const scores = make("p", { class: "scores" }, source, count);
    const node = make(
      "article",
      { class: "card", "aria-label": model.title },
      make("h3", { class: "title" }, model.title),
      scores,
      make("p", { class: "seen" }, parts.seen, parts.verdict, parts.sure),
      make("div", { class: "bar" }, parts.bar),
      parts.map,
      parts.tally,
    );
    const brief = make("li");
    let layout;
    const under = (event) => {
      const box = parts.map.getBoundingClientRect();
      return poseUnder(state.set, layout, event.clientX - box.left, event.clientY - box.top);
    };
    parts.map.addEventListener("click", (event) => {
      const at = under(event);
      if (at) moveTo(poseAt(at));
    });
    parts.map.addEventListener("pointermove", (event) => {
      const at = under(event);
      if (!at) return hideTip();
      const { seen, right, sure } = state.set.answer(model, state.image, at);
      const verdict = right ? "right" : "wrong";
      const text = `${state.set.classes[seen]} (${verdict}), ${percent(sure, 0)}\n${poseText(poseAt(at))}`;
      return showTip(text, event.clientX, event.clientY);
    });
    parts.map.addEventListener("pointerleave", hideTip);

    const now = () => state.set.answer(model, state.image, here());

    function show() {
      const { seen, right, sure } = now();
      parts.seen.textContent = state.set.classes[seen];
      parts.verdict.textContent = right ? "✓ right" : "✗ wrong";
      parts.verdict.className = `verdict ${right ? "right" : "wrong"}`;
      parts.sure.textContent = `${percent(sure, 0)} sure`;
      parts.bar.style.width = `${100 * sure}%`;
      const worst = state.set.worst(model, state.image);
      const isWrong = (...at) => !state.set.answer(model, state.image, at).right;
      brief.replaceChildren(
        make("span", {}, model.title),
        make("b", {}, `${state.set.classes[seen]} ${right ? "✓" : "✗"}`),
      );
      brief.className = right ? "right" : "wrong";
      layout = drawMap(parts.map, state.set, isWrong, here(), worst);
      const count = state.set.rightPoses(model, state.image);
      const tally = `Right at ${count} of ${state.set.poses} poses. `;
      parts.map.setAttribute("aria-label", `${tally}Worst pose: ${poseText(poseAt(worst))}.`);
      const go = make("button", { type: "button", class: "inline" }, poseText(poseAt(worst)));
      go.setAttribute("aria-label", `Go to the worst pose of ${model.title}: ${poseText(poseAt(worst))}`);
      go.addEventListener("click", () => {
        moveTo(poseAt(worst));
        node.querySelector(".tally button").focus();
      });
      parts.tally.replaceChildren(tally, "Worst: ", go);
    }

    const spoken = () => {
      const { seen, right, sure } = now();
      return `${model.title}: ${state.set.classes[seen]}, ${right ? "right" : "wrong"}, ${percent(sure, 0)}`;
    };
    return { node, brief, show, spoken };
  }

  function showModels() {
    const chosen = state.set.models.filter((model) => state.chosen.has(model));
    cards = chosen.map(makeCard);
    byId("cards").replaceChildren(...cards.map((card) => card.node));
    byId("brief").replaceChildren(...cards.map((card) => card.brief));
    [...byId("thumbs").children].forEach((thumb, image) => {
      const fell = chosen.map((model) => state.set.rightPoses(model, image) < state.set.poses);
      const label = state.set.classes[state.set.labels[image]];
      const count = fell.filter(Boolean).length;
      thumb.setAttribute("aria-label", `${label}: ${count} of ${fell.length} models err at some pose`);
      thumb.title = thumb.getAttribute("aria-label");
      const fates = fell.map((fallen) => make("i", { class: fallen ? "fell" : "held" }));
      thumb.querySelector(".fates").replaceChildren(...fates);
    });
    showPose();
  }

  function makeThumbs() {
    const upright = { dx: 0, dy: 0, angle: 0 };
    const thumbs = state.set.labels.map((_, image) => {
      const canvas = make("canvas");
      paintImage(canvas, state.set.pixelsOf(image), state.set.shape, upright);
      const thumb = make("button", { type: "button" }, canvas, make("span", { class: "fates" }));
      thumb.addEventListener("click", () => showImage(image));
      return thumb;
    });
    byId("thumbs").replaceChildren(...thumbs);
  }

  function makeModelChoice() {
    const legend = byId("models").querySelector("legend");
    const labels = state.set.models.map((model, place) => {
      const box = make("input", { type: "checkbox" });
      box.checked = place < 4;
      if (box.checked) state.chosen.add(model);
      box.addEventListener("change", () => {
        if (box.checked) state.chosen.add(model);
        else state.chosen.delete(model);
        showModels();
      });
      return make("label", {}, box, model.title);
    });
    byId("models").replaceChildren(legend, ...labels);
  }

  function makeDial() {
    const [low, high] = [state.set.angle[0], state.set.angle[state.set.angle.length - 1]];
    const at = (angle, radius) => {
      const turn = (-angle * Math.PI) / 180;
      return [radius * Math.sin(turn), -radius * Math.cos(turn)];
    };
    const points = Array.from({ length: 61 }, (_, i) => at(low + ((high - low) * i) / 60, DIAL));
    const arc = make("path", { class: "arc", d: `M${points.map((p) => p.join(" ")).join("L")}` });
    const ticks = [...new Set([low, 0, high])].map((angle) => {
      const [[x1, y1], [x2, y2], [x, y]] = [at(angle, DIAL - 3), at(angle, DIAL + 3), at(angle, DIAL + 10)];
      return make(
        "g",
        {},
        make("line", { class: "tick", x1, y1, x2, y2 }),
        make("text", { x, y: y + 2 }, `${signed(angle)}°`),
      );
    });
    knob = make("circle", { class: "knob", r: 7 });
    byId("dial").replaceChildren(arc, ...ticks, knob);
    dragKnob();
  }

  function drag(node, onStart, onMove) {
    node.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      node.setPointerCapture(event.pointerId);
      const start = onStart(event);
      const move = (next) => onMove(next, event, start);
      node.addEventListener("pointermove", move);
      const stop = () => node.removeEventListener("pointermove", move);
      node.addEventListener("lostpointercapture", stop, { once: true });
    });
  }

  function dragKnob() {
    drag(
      knob,
      () => undefined,
      (event) => {
        const box = picture.getBoundingClientRect();
        const x = event.clientX - box.left - box.width / 2;
        const y = event.clientY - box.top - box.height / 2;
        moveTo({ ...state.pose, angle: (Math.atan2(-x, -y) * 180) / Math.PI });
      },
    );
  }

  drag(
    picture,
    () => ({ ...state.pose }),
    (event, began, start) => {
      const scale = state.set.shape[2] / picture.clientWidth;
      moveTo({
        ...state.pose,
        dx: start.dx + (event.clientX - began.clientX) * scale,
        dy: start.dy + (event.clientY - began.clientY) * scale,
      });
    },
  );

  const keys = {
    ArrowLeft: () => stepBy("dx", -1),
    ArrowRight: () => stepBy("dx", 1),
    ArrowUp: () => stepBy("dy", -1),
    ArrowDown: () => stepBy("dy", 1),
    ",": () => stepBy("angle", 1),
    ".": () => stepBy("angle", -1),
    Home: () => moveTo({ dx: 0, dy: 0, angle: 0 }),
  };
  picture.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });

  for (const [name, slider] of Object.entries(sliders)) {
    slider.addEventListener("input", () => moveTo({ ...state.pose, [name]: Number(slider.value) }));
  }
  byId("reset").addEventListener("click", () => moveTo({ dx: 0, dy: 0, angle: 0 }));

  function fitSliders() {
    for (const [name, slider] of Object.entries(sliders)) {
      const axis = state.set[name];
      const steps = byId("snap").checked ? axis.length - 1 : 200;
      slider.min = axis[0];
      slider.max = axis[axis.length - 1];
      slider.step = (axis[axis.length - 1] - axis[0]) / steps || 1;
      slider.disabled = axis.length < 2;
    }
  }
  byId("snap").addEventListener("change", () => {
    fitSliders();
    showPose();
  });

  function openExhibition(place) {
    state.set = sets[place];
    state.pose = { dx: 0, dy: 0, angle: 0 };
    state.chosen = new Set();
    const counts = ["dx", "dy", "angle"].map((name) => state.set[name].length);
    byId("saved-at").textContent =
      `Answers were saved at ${state.set.poses} poses, ${counts[0]} × ${counts[1]} shifts × ` +
      `${counts[2]} angles, of ${state.set.labels.length} images drawn at random from ${state.set.dataset}.`;
    fitSliders();
    makeDial();
    makeThumbs();
    makeModelChoice();
    showModels();
    showImage(state.set.first);
  }

  sets.forEach((set, place) => byId("set").append(make("option", { value: place }, set.dataset)));
  byId("set-choice").hidden = sets.length < 2;
  byId("set").addEventListener("change", () => openExhibition(Number(byId("set").value)));
  openExhibition(0);
  repaint(() => cards.forEach((card) => card.show()));
}

if (data.exhibitions.length) startExplorer();

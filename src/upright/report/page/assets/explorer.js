// The explorer: one image, one pose, and what each chosen model answers there.

function startExplorer() {
  const sets = data.exhibitions.map(openSet);
  const explorer = {
    set: sets[0],
    image: 0,
    pose: UPRIGHT,
    chosen: new Set(),
    cards: [],
    snaps: () => byId("snap").checked,
    shown: () => (explorer.snaps() ? explorer.set.poseAt(explorer.here()) : explorer.pose),
    here: () => explorer.set.nearest(explorer.pose),
    moveTo: (pose) => {
      explorer.pose = explorer.set.clamp(pose);
      showPose(explorer);
    },
  };
  explorer.stage = makeStage(explorer);
  byId("reset").addEventListener("click", () => explorer.moveTo(UPRIGHT));
  byId("snap").addEventListener("change", () => {
    explorer.stage.fit();
    showPose(explorer);
  });
  sets.forEach((set, place) => byId("set").append(make("option", { value: place }, set.dataset)));
  byId("set-choice").hidden = sets.length < 2;
  byId("set").addEventListener("change", () => showSet(explorer, sets[Number(byId("set").value)]));
  showSet(explorer, sets[0]);
  repaint(() => explorer.cards.forEach((card) => card.show()));
}

function showSet(explorer, set) {
  Object.assign(explorer, { set, pose: UPRIGHT, image: set.first, chosen: new Set() });
  const [dx, dy, angle] = AXES.map((name) => set[name].length);
  byId("saved-at").textContent =
    `Answers were saved at ${set.poses} poses, ${dx} × ${dy} shifts × ${angle} angles, of ` +
    `${set.labels.length} images drawn at random from ${set.dataset}.`;
  explorer.stage.fit();
  makeThumbs(explorer);
  makeModelChoice(explorer);
  showModels(explorer);
  showImage(explorer, set.first);
}

function makeThumbs(explorer) {
  const thumbs = explorer.set.labels.map((_, image) => {
    const canvas = make("canvas");
    paintImage(canvas, explorer.set.pixelsOf(image), explorer.set.shape, UPRIGHT);
    const thumb = make("button", { type: "button" }, canvas, make("span", { class: "fates" }));
    thumb.addEventListener("click", () => showImage(explorer, image));
    return thumb;
  });
  byId("thumbs").replaceChildren(...thumbs);
}

function makeModelChoice(explorer) {
  const labels = explorer.set.models.map((model, place) => {
    const box = make("input", { type: "checkbox" });
    box.checked = place < 4;
    if (box.checked) explorer.chosen.add(model);
    box.addEventListener("change", () => {
      if (box.checked) explorer.chosen.add(model);
      else explorer.chosen.delete(model);
      showModels(explorer);
    });
    return make("label", {}, box, model.title);
  });
  byId("models").replaceChildren(byId("models").querySelector("legend"), ...labels);
}

function showModels(explorer) {
  const { set } = explorer;
  const chosen = set.models.filter((model) => explorer.chosen.has(model));
  explorer.cards = chosen.map((model) => makeCard(model, explorer));
  byId("cards").replaceChildren(...explorer.cards.map((card) => card.node));
  byId("brief").replaceChildren(...explorer.cards.map((card) => card.brief));
  [...byId("thumbs").children].forEach((thumb, image) => {
    const fell = chosen.map((model) => set.rightPoses(model, image) < set.poses);
    const count = fell.filter(Boolean).length;
    thumb.title = `${set.label(image)}: ${count} of ${fell.length} models err at some pose`;
    thumb.setAttribute("aria-label", thumb.title);
    const fates = fell.map((fallen) => make("i", { class: fallen ? "fell" : "held" }));
    thumb.querySelector(".fates").replaceChildren(...fates);
  });
  showPose(explorer);
}

function showImage(explorer, image) {
  explorer.image = image;
  const { set } = explorer;
  const place = `, ${set.split} image ${set.places[image]}`;
  byId("truth").replaceChildren("labelled ", make("b", {}, set.label(image)), place);
  const name = `Picture labelled ${set.label(image)}; drag it or use the keys`;
  byId("picture").setAttribute("aria-label", name);
  [...byId("thumbs").children].forEach((thumb, other) => {
    thumb.setAttribute("aria-pressed", other === image);
  });
  showPose(explorer);
}

function showPose(explorer) {
  const saved = explorer.set.poseAt(explorer.here());
  const shown = explorer.shown();
  explorer.stage.show(shown);
  byId("pose").textContent =
    poseText(shown) === poseText(saved)
      ? `Shown, and answered: ${poseText(saved)}.`
      : `Shown: ${poseText(shown)}. The answers are those of the nearest saved pose: ${poseText(saved)}.`;
  for (const card of explorer.cards) card.show();
  speak(explorer);
}

let speaking = 0;

// One sentence for screen readers, once the pose has come to rest.
function speak(explorer) {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    byId("spoken").textContent = explorer.cards.map((card) => card.spoken()).join("; ");
  }, 500);
}

if (data.exhibitions.length) startExplorer();

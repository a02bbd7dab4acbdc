// The explorer: one image, one pose, and what each chosen model answers there.

async function startExplorer() {
  const sets = await Promise.all(data.exhibitions.map(openSet));
  const explorer = {
    set: sets[0],
    image: 0,
    pose: sets[0].upright,
    map: chooseMap(sets[0]),
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
  byId("reset").addEventListener("click", () => explorer.moveTo(explorer.set.upright));
  byId("snap").addEventListener("change", () => {
    explorer.stage.fit();
    showPose(explorer);
  });
  sets.forEach((set, place) => byId("set").append(make("option", { value: place }, set.title)));
  byId("set-choice").hidden = sets.length < 2;
  byId("set").addEventListener("change", () => showSet(explorer, sets[Number(byId("set").value)]));
  showSet(explorer, sets[0]);
  repaint(() => explorer.cards.forEach((card) => card.show()));
}

function showSet(explorer, set) {
  const [image, map] = [set.first, chooseMap(set)];
  Object.assign(explorer, { set, pose: set.upright, map, image, chosen: new Set() });
  byId("how").textContent = howText(set);
  const counts = set.counts.length > 1 ? ` (${set.counts.join(" × ")})` : "";
  byId("saved-at").textContent =
    `Answers were saved at ${set.poses} poses${counts} of ${set.space}, of ` +
    `${set.labels.length} images drawn at random from ${set.dataset}.`;
  byId("unseen").hidden = !set.unseen.length;
  byId("unseen").textContent =
    `The picture is shown without ${set.unseen.join(" and ")}, which this page does not know. ` +
    "The answers are those to images with it.";
  explorer.stage.open();
  makeMapChoice(explorer);
  makeThumbs(explorer);
  makeModelChoice(explorer);
  showModels(explorer);
  showImage(explorer, image);
}

function howText(set) {
  const ways = [];
  if (canShift(set)) ways.push("Drag the picture to shift it");
  if (canTurn(set)) ways.push("the knob above it to turn it");
  if (ways.length === 1 && canTurn(set)) ways[0] = "Drag the knob above the picture to turn it";
  return ways.length
    ? `${ways.join(" and ")}, or use the sliders or the keyboard.`
    : "Use the sliders to change the picture.";
}

// Of more than three axes that vary, two are on the map; one that is chosen twice changes places.
function makeMapChoice(explorer) {
  const { set } = explorer;
  for (const way of ["across", "down"]) {
    const choice = byId(`map-${way}`);
    const option = (value) => make("option", { value }, wordsOf(set.axes[value]).noun);
    choice.replaceChildren(...varying(set).map(option));
    choice.onchange = () => {
      const other = way === "across" ? "down" : "across";
      const chosen = Number(choice.value);
      const rest = chosen === explorer.map[other] ? explorer.map[way] : explorer.map[other];
      explorer.map = { [way]: chosen, [other]: rest };
      showMapChoice(explorer);
      showPose(explorer);
    };
  }
  byId("map-choice").hidden = varying(set).length <= 3;
  showMapChoice(explorer);
}

function showMapChoice({ set, map }) {
  byId("map-across").value = map.across;
  byId("map-down").value = map.down;
  byId("map-text").textContent = mapText(set, map);
}

function makeThumbs(explorer) {
  const thumbs = explorer.set.labels.map((_, image) => {
    const canvas = make("canvas");
    const { set } = explorer;
    paintImage(canvas, set.pixelsOf(image), set.shape, set.upright, set);
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
  const moves = canShift(set) ? "; drag it or use the keys" : "";
  const name = `Picture labelled ${set.label(image)}${moves}`;
  byId("picture").setAttribute("aria-label", name);
  [...byId("thumbs").children].forEach((thumb, other) => {
    thumb.setAttribute("aria-pressed", other === image);
  });
  showPose(explorer);
}

function showPose(explorer) {
  const shown = explorer.shown();
  explorer.stage.show(shown);
  const [seen, saved] = [shown, explorer.set.poseAt(explorer.here())].map((pose) =>
    poseText(explorer.set, pose),
  );
  byId("pose").textContent =
    seen === saved
      ? `Shown, and answered: ${saved}.`
      : `Shown: ${seen}. The answers are those of the nearest saved pose: ${saved}.`;
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

// A card: what one model answers at this pose, and its map of right and wrong.

function makeCard(model, explorer) {
  const parts = {
    seen: make("b"),
    verdict: make("span"),
    sure: make("span", { class: "sure" }),
    bar: make("i"),
    others: make("ol", { class: "others", "aria-label": "The next likeliest classes" }),
    map: make("canvas", { class: "map", role: "img" }),
    tally: make("span"),
    go: make("button", { type: "button", class: "inline" }),
    near: make("button", { type: "button", class: "inline" }),
    smallest: make("span"),
    brief: make("li"),
  };
  const node = make(
    "article",
    { class: "card", "aria-label": model.title },
    make("h3", { class: "title" }, model.title),
    scoresOf(model),
    make("p", { class: "seen" }, parts.seen, parts.verdict, parts.sure),
    make("div", { class: "bar" }, parts.bar),
    parts.others,
    parts.map,
    make("p", { class: "tally" }, parts.tally, parts.go, parts.smallest),
  );
  const worst = () => explorer.set.worst(model, explorer.image);
  const now = () => explorer.set.answer(model, explorer.image, explorer.here());
  parts.go.addEventListener("click", () => explorer.moveTo(explorer.set.poseAt(worst())));
  parts.smallest.append(". Smallest: ", parts.near);
  parts.near.addEventListener("click", () => explorer.moveTo(model.smallest[explorer.image]));
  const watched = watchMap(parts.map, model, explorer);

  function show() {
    const { set, map } = explorer;
    showAnswer(parts, model, now());
    showOthers(parts, set.others(model, explorer.image, explorer.here()));
    const isWrong = (at) => !set.answer(model, explorer.image, at).right;
    watched.layout = drawMap(parts.map, set, map, isWrong, explorer.here(), worst());
    showTally(parts, model, explorer, poseText(set, set.poseAt(worst())));
    showSmallest(parts, model, explorer);
  }

  const spoken = () => {
    const { seen, right, sure } = now();
    return `${model.title}: ${seen}, ${right ? "right" : "wrong"}, ${sure}`;
  };
  return { node, brief: parts.brief, show, spoken };
}

function scoresOf(model) {
  const numbers =
    `natural ${percent(model.measured.nat)}, ` +
    `${model.attack} ${percent(model.measured[model.attack])}`;
  const source = model.record ? make("a", { href: `#record-${model.record}` }, numbers) : numbers;
  const count = ` of ${model.images.toLocaleString("en")} images`;
  return make("p", { class: "scores" }, source, count);
}

function showAnswer(parts, model, { seen, right, sure }) {
  const kind = right ? "right" : "wrong";
  const mark = right ? "✓" : "✗";
  parts.seen.textContent = seen;
  parts.verdict.textContent = `${mark} ${kind}`;
  parts.verdict.className = `verdict ${kind}`;
  parts.sure.textContent = `${sure} sure`;
  parts.bar.style.width = sure.replace(" ", "");
  parts.brief.replaceChildren(make("span", {}, model.title), make("b", {}, `${seen} ${mark}`));
  parts.brief.className = kind;
}

function showOthers(parts, others) {
  parts.others.hidden = !others.length;
  const lines = others.map(({ seen, right, share }) => {
    const bar = make("i");
    bar.style.width = percent(share).replace(" ", "");
    const name = make("span", {}, right ? `${seen} ✓` : seen);
    return make("li", {}, name, make("span", { class: "sure" }, percent(share, 0)), bar);
  });
  parts.others.replaceChildren(...lines);
}

function showTally(parts, model, explorer, worst) {
  const count = explorer.set.rightPoses(model, explorer.image);
  const natural = explorer.set.className(model.natural[explorer.image]);
  parts.tally.textContent = `As it is: ${natural}. Right at ${count} of ${explorer.set.poses} poses. Worst: `;
  parts.go.textContent = worst;
  parts.go.setAttribute("aria-label", `Go to the worst pose of ${model.title}: ${worst}`);
  parts.map.setAttribute("aria-label", `Map of ${model.title}. ${parts.tally.textContent}${worst}.`);
}

// The smallest pose that fools the model, where one does.
function showSmallest(parts, model, explorer) {
  const pose = model.smallest[explorer.image];
  parts.smallest.hidden = !pose;
  const text = pose ? poseText(explorer.set, pose) : "";
  parts.near.textContent = text;
  parts.near.setAttribute("aria-label", `Go to the smallest pose that fools ${model.title}: ${text}`);
}

// A click on the map goes to the pose under it, and a tip names the answer there.
function watchMap(map, model, explorer) {
  const watched = { layout: undefined };
  const under = (event) => {
    const box = map.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return poseUnder(watched.layout, explorer.here(), x, y);
  };
  map.addEventListener("click", (event) => {
    const at = under(event);
    if (at) explorer.moveTo(explorer.set.poseAt(at));
  });
  map.addEventListener("pointermove", (event) => {
    const at = under(event);
    if (!at) return hideTip();
    const { seen, right, sure } = explorer.set.answer(model, explorer.image, at);
    const pose = poseText(explorer.set, explorer.set.poseAt(at));
    const text = `${seen} (${right ? "right" : "wrong"}), ${sure}\n${pose}`;
    return showTip(text, event.clientX, event.clientY);
  });
  map.addEventListener("pointerleave", hideTip);
  return watched;
}

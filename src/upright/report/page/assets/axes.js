// The axes of a space, and poses, which have a number for each: their places on grids, and in words.

// What the page calls an axis: above its slider, in a sentence, and which way it goes.
const WORDS = {
  dx: { title: "Right", noun: "shift right", ways: ["left", "right"] },
  dy: { title: "Down", noun: "shift down", ways: ["up", "down"] },
  angle: { title: "Turn", noun: "angle", ways: ["clockwise", "counter-clockwise"] },
};
const UNITS = { px: " px", degrees: "°" };

function wordsOf(axis) {
  const noun = axis.name.replaceAll("_", " ");
  return WORDS[axis.name] ?? { title: noun[0].toUpperCase() + noun.slice(1), noun };
}

function valueText(axis, value) {
  if (axis.unit === "factor") return `${number(Math.exp(value), 3)}×`;
  return `${signed(value, axis.unit ? 2 : 3)}${UNITS[axis.unit] ?? ""}`;
}

function axisText(axis, value) {
  const { noun, ways } = wordsOf(axis);
  if (!ways) return `${noun} ${valueText(axis, value)}`;
  return `${number(Math.abs(value))}${UNITS[axis.unit]} ${ways[Number(value > 0)]}`;
}

// The columns of poses in the order in which they act: families from the right to the left.
function inOrder({ families }) {
  let start = 0;
  const each = families.map(({ axes }) => {
    start += axes;
    return Array.from({ length: axes }, (_, place) => start - axes + place);
  });
  return each.reverse().flat();
}

// What is as good as zero is not named.
function poseText(set, pose) {
  const says = (column) => valueText(set.axes[column], pose[column]);
  const changed = inOrder(set).filter((column) => says(column) !== valueText(set.axes[column], 0));
  return changed.map((column) => axisText(set.axes[column], pose[column])).join(", ") || "as it is";
}

function ravel(at, counts) {
  return at.reduce((index, place, column) => index * counts[column] + place, 0);
}

function unravel(index, counts) {
  return counts
    .toReversed()
    .map((count) => {
      const place = index % count;
      index = (index - place) / count;
      return place;
    })
    .reverse();
}

function nearest(axis, value) {
  const far = axis.values.map((x) => Math.abs(x - value));
  return far.indexOf(Math.min(...far));
}

function withValue(list, column, value) {
  return list.map((old, place) => (place === column ? value : old));
}

// A set of images with the answers of its models at every pose of a grid.

function openSet(packed) {
  const shape = packed.shape.slice(1);
  const size = shape.reduce((a, b) => a * b);
  const pixels = bytesOf(packed.images);
  const poses = packed.dx.length * packed.dy.length * packed.angle.length;
  const models = packed.models.map((model) => ({
    ...model,
    predicted: new (model.wide ? Uint32Array : Uint16Array)(bytesOf(model.predicted).buffer),
    confidence: bytesOf(model.confidence),
  }));
  // A model may know more classes than the data have names for.
  const className = (number) => packed.classes[number] ?? String(number);
  const isRight = (image, seen) => seen === packed.labels[image];
  return {
    ...packed,
    shape,
    poses,
    models,
    pixelsOf: (image) => pixels.subarray(image * size, (image + 1) * size),
    className,
    label: (image) => className(packed.labels[image]),
    answer: (model, image, at) => {
      const place = image * poses + ravel(at, packed);
      const seen = model.predicted[place];
      const sure = percent(model.confidence[place] / 255, 0);
      return { seen: className(seen), right: isRight(image, seen), sure };
    },
    rightPoses: (model, image) => {
      const part = model.predicted.subarray(image * poses, (image + 1) * poses);
      return part.reduce((sum, seen) => sum + isRight(image, seen), 0);
    },
    worst: (model, image) => unravel(model.worst[image], packed),
    poseAt: ([i, j, k]) => ({ dx: packed.dx[i], dy: packed.dy[j], angle: packed.angle[k] }),
    nearest: (pose) => AXES.map((name) => nearest(packed[name], pose[name])),
    clamp: (pose) => {
      const within = (axis, value) => clamp(value, axis[0], axis[axis.length - 1]);
      return Object.fromEntries(AXES.map((name) => [name, within(packed[name], pose[name])]));
    },
  };
}

const AXES = ["dx", "dy", "angle"];
const UPRIGHT = { dx: 0, dy: 0, angle: 0 };

function ravel([i, j, k], set) {
  return (i * set.dy.length + j) * set.angle.length + k;
}

function unravel(index, set) {
  const k = index % set.angle.length;
  const rest = (index - k) / set.angle.length;
  return [Math.floor(rest / set.dy.length), rest % set.dy.length, k];
}

function nearest(axis, value) {
  const far = axis.map((x) => Math.abs(x - value));
  return far.indexOf(Math.min(...far));
}

function poseText({ dx, dy, angle }) {
  const parts = [];
  const say = (value, unit, above, below) => {
    if (value) parts.push(`${number(Math.abs(value))}${unit} ${value > 0 ? above : below}`);
  };
  say(angle, "°", "counter-clockwise", "clockwise");
  say(dx, " px", "right", "left");
  say(dy, " px", "down", "up");
  return parts.join(", ") || "as it is";
}

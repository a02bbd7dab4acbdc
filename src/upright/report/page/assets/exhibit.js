// A set of images with the answers of its models at every pose of a grid.

function openSet(packed) {
  const shape = packed.shape.slice(1);
  const size = shape.reduce((a, b) => a * b);
  const pixels = bytesOf(packed.images);
  const { axes } = packed;
  const counts = axes.map((axis) => axis.values.length);
  const poses = counts.reduce((a, b) => a * b);
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
    counts,
    poses,
    models,
    upright: axes.map(() => 0),
    // Which column of a pose has a name; none where the space has no such axis.
    column: (name) => axes.findIndex((axis) => axis.name === name),
    unseen: packed.families.filter((family) => family.unseen).map((family) => family.name),
    pixelsOf: (image) => pixels.subarray(image * size, (image + 1) * size),
    className,
    label: (image) => className(packed.labels[image]),
    answer: (model, image, at) => {
      const place = image * poses + ravel(at, counts);
      const seen = model.predicted[place];
      const sure = percent(model.confidence[place] / 255, 0);
      return { seen: className(seen), right: isRight(image, seen), sure };
    },
    rightPoses: (model, image) => {
      const part = model.predicted.subarray(image * poses, (image + 1) * poses);
      return part.reduce((sum, seen) => sum + isRight(image, seen), 0);
    },
    worst: (model, image) => unravel(model.worst[image], counts),
    poseAt: (at) => axes.map((axis, column) => axis.values[at[column]]),
    nearest: (pose) => axes.map((axis, column) => nearest(axis, pose[column])),
    clamp: (pose) =>
      axes.map(({ values }, column) => clamp(pose[column], values[0], values[values.length - 1])),
  };
}

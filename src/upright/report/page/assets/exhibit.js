// A set of images with the answers of its models at every pose of a grid.

async function openSet(packed) {
  const shape = packed.shape.slice(1);
  const size = shape.reduce((a, b) => a * b);
  const pixels = packed.images
    ? bytesOf(packed.images)
    : joined(await Promise.all(packed.pictures.map((picture) => decoded(picture, shape))), size);
  const { axes } = packed;
  const counts = axes.map((axis) => axis.values.length);
  const poses = counts.reduce((a, b) => a * b);
  const models = packed.models.map((model) => {
    const classes = (part) => new (model.wide ? Uint32Array : Uint16Array)(bytesOf(part).buffer);
    return {
      ...model,
      predicted: classes(model.predicted),
      confidence: bytesOf(model.confidence),
      others: classes(model.others ?? ""),
      othersConfidence: bytesOf(model.others_confidence ?? ""),
    };
  });
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
    // The classes that are the likeliest after the answer; none where they were not saved.
    others: (model, image, at) => {
      const count = model.others.length / model.predicted.length;
      const start = (image * poses + ravel(at, counts)) * count;
      return [...model.others.subarray(start, start + count)].map((seen, place) => ({
        seen: className(seen),
        right: isRight(image, seen),
        share: model.othersConfidence[start + place] / 255,
      }));
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

// The pixels of a picture, one channel after the other.
async function decoded(address, [channels, height, width]) {
  const picture = new Image();
  picture.src = address;
  await picture.decode();
  const canvas = Object.assign(make("canvas"), { width, height });
  const brush = canvas.getContext("2d", { willReadFrequently: true });
  brush.drawImage(picture, 0, 0);
  const { data: colours } = brush.getImageData(0, 0, width, height);
  const size = height * width;
  return Uint8Array.from({ length: channels * size }, (_, index) => {
    const channel = Math.floor(index / size);
    return colours[4 * (index - channel * size) + channel];
  });
}

function joined(parts, size) {
  const all = new Uint8Array(parts.length * size);
  parts.forEach((part, place) => all.set(part, place * size));
  return all;
}

// What upright.warp does to an image, in the browser: black outside, bilinear. Families act from the
// right to the left; neighbours that move points are one map and one resampling.

// Where pixels come from, as a 3 x 3 matrix row by row, about the centre, x to the right and y down.
const MAPS = {
  shift: ([dx, dy]) => [1, 0, -dx, 0, 1, -dy, 0, 0, 1],
  rotate: ([angle]) => {
    const [cos, sin] = [Math.cos(radians(angle)), Math.sin(radians(angle))];
    return [cos, -sin, 0, sin, cos, 0, 0, 0, 1];
  },
  zoom: ([zoom]) => [Math.exp(-zoom), 0, 0, 0, Math.exp(-zoom), 0, 0, 0, 1],
  stretch: ([x, y]) => [Math.exp(-x), 0, 0, 0, Math.exp(-y), 0, 0, 0, 1],
  shear: (angles) => {
    const [x, y] = angles.map((angle) => Math.tan(radians(angle)));
    const part = 1 / (1 - x * y);
    return [part, x * part, 0, y * part, part, 0, 0, 0, 1];
  },
  perspective: ([x, y], [, height, width]) =>
    [1, 0, 0, 0, 1, 0, (-2 * x) / width, (-2 * y) / height, 1],
};

// What becomes of pixels, which lie in [0, 1].
const VALUES = {
  brightness: (pixels, [more]) => pixels.map((value) => clamp(value + more, 0, 1)),
  contrast: (pixels, [log]) => {
    const mean = pixels.reduce((sum, value) => sum + value, 0) / pixels.length;
    return pixels.map((value) => apart(value, mean, Math.exp(log)));
  },
  gamma: (pixels, [log]) => pixels.map((value) => value ** Math.exp(log)),
  saturation: (pixels, [log], shape) =>
    mixColours(pixels, shape, (colour, grey) =>
      colour.map((value) => apart(value, grey, Math.exp(log))),
    ),
  hue: (pixels, [angle], shape) => {
    const [cos, sin] = [Math.cos(radians(angle)), Math.sin(radians(angle))];
    return mixColours(pixels, shape, (colour, grey) =>
      colour.map((value, place) => {
        const across = (colour[(place + 2) % 3] - colour[(place + 1) % 3]) / Math.sqrt(3);
        return clamp(value + (1 - cos) * (grey - value) + sin * across, 0, 1);
      }),
    );
  },
  blur: (pixels, [deviation], [, height, width], [axis]) => {
    const reach = Math.max(1, Math.ceil(3 * axis.high));
    const places = Array.from({ length: 2 * reach + 1 }, (_, place) => place - reach);
    const raw = places.map((place) => Math.exp(-(place ** 2) / (2 * deviation ** 2 + 1e-12)));
    const total = raw.reduce((sum, weight) => sum + weight);
    const weights = raw.map((weight) => weight / total);
    const level = blurAlong(pixels, weights, width, 1);
    return blurAlong(level, weights, height, width);
  },
};

function radians(degrees) {
  return (degrees * Math.PI) / 180;
}

function apart(value, middle, factor) {
  return clamp(value * factor + middle * (1 - factor), 0, 1);
}

// Images of another number of channels have no colour.
function mixColours(pixels, [channels, height, width], mix) {
  const out = pixels.slice();
  const size = height * width;
  for (let place = 0; place < (channels === 3 ? size : 0); place++) {
    const colour = [pixels[place], pixels[size + place], pixels[2 * size + place]];
    const grey = (colour[0] + colour[1] + colour[2]) / 3;
    mix(colour, grey).forEach((value, channel) => {
      out[channel * size + place] = value;
    });
  }
  return out;
}

// Beyond its edges an image goes on as its border pixels are.
function blurAlong(pixels, weights, size, stride) {
  const reach = (weights.length - 1) / 2;
  return pixels.map((_, index) => {
    const place = Math.floor(index / stride) % size;
    let sum = 0;
    for (let far = -reach; far <= reach; far++) {
      sum += weights[far + reach] * pixels[index + (clamp(place + far, 0, size - 1) - place) * stride];
    }
    return sum;
  });
}

function multiply(one, other) {
  const cell = (row, column) =>
    [0, 1, 2].reduce((sum, i) => sum + one[3 * row + i] * other[3 * i + column], 0);
  return one.map((_, place) => cell(Math.floor(place / 3), place % 3));
}

// Move an image about a point, and give a part of it.
function resample(pixels, [channels, height, width], map, [middleY, middleX], part) {
  const [a, b, dx, c, d, dy, e, f, g] = map;
  const out = new Float64Array(channels * part.height * part.width);
  const at = (channel, row, column) =>
    row >= 0 && row < height && column >= 0 && column < width
      ? pixels[(channel * height + row) * width + column]
      : 0;
  for (let row = 0; row < part.height; row++) {
    for (let column = 0; column < part.width; column++) {
      const [x, y] = [column + part.left - middleX, row + part.top - middleY];
      const depth = Math.max(e * x + f * y + g, 1e-6);
      const fromX = (a * x + b * y + dx) / depth + middleX;
      const fromY = (c * x + d * y + dy) / depth + middleY;
      const [left, top] = [Math.floor(fromX), Math.floor(fromY)];
      const [partX, partY] = [fromX - left, fromY - top];
      for (let channel = 0; channel < channels; channel++) {
        const above = at(channel, top, left) * (1 - partX) + at(channel, top, left + 1) * partX;
        const below =
          at(channel, top + 1, left) * (1 - partX) + at(channel, top + 1, left + 1) * partX;
        out[(channel * part.height + row) * part.width + column] = above * (1 - partY) + below * partY;
      }
    }
  }
  return out;
}

// A family that the script does not know brings its maps at the poses of the grid.
function mapOf(family, axes, values, shape) {
  if (!family.maps) return MAPS[family.name](values, shape);
  const counts = axes.map((axis) => axis.values.length);
  return family.maps[ravel(axes.map((axis, place) => nearest(axis, values[place])), counts)];
}

function cut(pixels, [channels, height, width], part) {
  if (part.height === height && part.width === width) return pixels;
  const size = part.height * part.width;
  return Float64Array.from({ length: channels * size }, (_, index) => {
    const [channel, place] = [Math.floor(index / size), index % size];
    const row = part.top + Math.floor(place / part.width);
    return pixels[(channel * height + row) * width + part.left + (place % part.width)];
  });
}

function whole([, height, width]) {
  const centre = [(height - 1) / 2, (width - 1) / 2];
  return { top: 0, left: 0, height, width, centre, size: [height, width] };
}

// Pixels of a pose are those of the images as models saw them; here they may be held smaller.
function inHeld(axes, pose, scale) {
  const factors = axes.map((axis) => (axis.unit === "px" ? scale : 1));
  return {
    axes: axes.map((axis, place) => ({
      ...axis,
      high: axis.high * factors[place],
      values: axis.values.map((value) => value * factors[place]),
    })),
    pose: pose.map((value, place) => value * factors[place]),
  };
}

// What models see of an image at a pose.
function warp(bytes, shape, asked, { axes: told, families, scale = 1, seen = whole(shape) }) {
  const { axes, pose } = inHeld(told, asked, scale);
  const all = whole(shape);
  let pixels = Float64Array.from(bytes, (value) => value / 255);
  let map;
  let end = pose.length;
  for (const family of [...families].reverse()) {
    const start = end - family.axes;
    const [own, values] = [axes.slice(start, end), pose.slice(start, end)];
    end = start;
    if (family.maps || MAPS[family.name]) {
      const next = mapOf(family, own, values, [shape[0], ...seen.size]);
      map = map ? multiply(map, next) : next;
    } else if (VALUES[family.name]) {
      if (map) pixels = resample(pixels, shape, map, seen.centre, all);
      map = undefined;
      pixels = VALUES[family.name](pixels, values, shape, own);
    }
  }
  return map ? resample(pixels, shape, map, seen.centre, seen) : cut(pixels, shape, seen);
}

function paintImage(canvas, bytes, shape, pose, set) {
  const [channels] = shape;
  const { height, width } = set.seen;
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const pixels = warp(bytes, shape, pose, set);
  const size = height * width;
  const out = new Uint8ClampedArray(4 * size).fill(255);
  for (let place = 0; place < size; place++) {
    for (let colour = 0; colour < 3; colour++) {
      out[4 * place + colour] = 255 * pixels[Math.min(colour, channels - 1) * size + place];
    }
  }
  canvas.getContext("2d").putImageData(new ImageData(out, width, height), 0, 0);
}

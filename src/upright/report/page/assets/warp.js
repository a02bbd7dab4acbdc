// One affine map and one bilinear resampling, black outside, as upright.warp does it: dx > 0 moves
// the content right, dy > 0 down, angle > 0 turns it counter-clockwise, about the centre and first.

function warp(pixels, [channels, height, width], pose) {
  const turn = (pose.angle * Math.PI) / 180;
  const [cos, sin] = [Math.cos(turn), Math.sin(turn)];
  const [middleX, middleY] = [(width - 1) / 2, (height - 1) / 2];
  const out = new Uint8ClampedArray(4 * width * height);
  const at = (channel, row, column) =>
    row >= 0 && row < height && column >= 0 && column < width
      ? pixels[(channel * height + row) * width + column]
      : 0;
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const x = column - middleX - pose.dx;
      const y = row - middleY - pose.dy;
      const [fromX, fromY] = [cos * x - sin * y + middleX, sin * x + cos * y + middleY];
      const [left, top] = [Math.floor(fromX), Math.floor(fromY)];
      const [partX, partY] = [fromX - left, fromY - top];
      const target = 4 * (row * width + column);
      for (let colour = 0; colour < 3; colour++) {
        const channel = Math.min(colour, channels - 1);
        const above = at(channel, top, left) * (1 - partX) + at(channel, top, left + 1) * partX;
        const below =
          at(channel, top + 1, left) * (1 - partX) + at(channel, top + 1, left + 1) * partX;
        out[target + colour] = above * (1 - partY) + below * partY;
      }
      out[target + 3] = 255;
    }
  }
  return new ImageData(out, width, height);
}

function paintImage(canvas, pixels, shape, pose) {
  const [, height, width] = shape;
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  canvas.getContext("2d").putImageData(warp(pixels, shape, pose), 0, 0);
}

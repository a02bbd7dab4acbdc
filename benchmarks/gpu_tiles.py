"""Which tiles are fastest for the kernels of ``upright.models.fused``, layer by layer, on a GPU.

    python benchmarks/gpu_tiles.py [KERNEL ...]

Prints microseconds of each kernel for each layer of a ResNet-32, batch and tile, the fastest first;
``models/fused/triton_tiles.py`` has the choice. About three minutes, most of it compilation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from upright.models.fused.triton_tiles import Kernel, Tile, tile_for

CUDA = torch.device("cuda")


@dataclass(frozen=True)
class Layer:
    side: int
    before: int
    after: int
    stride: int = 1

    def values(self, images: int, *, out: bool = False) -> Tensor:
        side, channels = (self.side // self.stride, self.after) if out else (self.side, self.before)
        return torch.randn(images, side, side, channels, device=CUDA).bfloat16()

    @property
    def kernel(self) -> Tensor:
        return torch.randn(self.after * 9 * self.before, device=CUDA).bfloat16()


LAYERS = (
    Layer(32, 16, 16),
    Layer(32, 16, 32, 2),
    Layer(16, 32, 32),
    Layer(16, 32, 64, 2),
    Layer(8, 64, 64),
)
TILES: dict[Kernel, tuple[Tile, ...]] = {
    "forward": (
        Tile(32, 1, 2),
        Tile(64, 1),
        Tile(128, 1),
        Tile(128, 1, 8),
        Tile(128, 1, stages=1),
        Tile(128, 4, stages=2),
        Tile(256, 4, 8, 2),
    ),
    "inputs": (
        Tile(32, 1, 2),
        Tile(64, 1),
        Tile(128, 1),
        Tile(128, 1, stages=1),
        Tile(128, 4, stages=2),
    ),
    "weights": (
        Tile(64, 1, splits=32),
        Tile(64, 1, splits=64),
        Tile(128, 1, 8, splits=32),
        Tile(64, 4, splits=64),
        Tile(64, 4, splits=128),
        Tile(128, 4, splits=64),
    ),
}
BATCHES: dict[Kernel, tuple[int, ...]] = {
    "forward": (64, 128, 704, 8192),
    "inputs": (64, 128),
    "weights": (64, 128),
}


def work(kernel: Kernel, layer: Layer, images: int, tile: Tile) -> Callable[[], object]:
    """One call of a kernel; a large batch is one in evaluation mode."""
    from upright.models.fused import convolution_backward_kernels, convolution_kernels

    before, after, weights = layer.values(images), layer.values(images, out=True), layer.kernel
    sums = torch.ones(2, max(layer.before, layer.after), device=CUDA)
    if kernel == "forward" and images > 256:
        scale = sums[0, : layer.after]
        return lambda: convolution_kernels.convolve(
            before,
            weights,
            scale,
            scale,
            after=layer.after,
            stride=layer.stride,
            slope=0.1,
            tile=tile,
        )
    if kernel == "forward":
        return lambda: convolution_kernels.convolve_and_sum(
            before, weights, sums, after=layer.after, stride=layer.stride, tile=tile
        )
    gradient_sums = torch.zeros_like(sums)
    if kernel == "inputs":
        return lambda: convolution_backward_kernels.gradient_before_norm(
            after,
            weights,
            before,
            sums,
            sums[0],
            sums[0],
            gradient_sums,
            stride=layer.stride,
            slope=0.1,
            epsilon=1e-5,
            tile=tile,
        )
    out = torch.zeros(len(weights), device=CUDA)
    return lambda: convolution_backward_kernels.gradient_of_weights(
        before, after, out, stride=layer.stride, tile=tile
    )


def microseconds(call: Callable[[], object], calls: int = 20) -> float:
    """Of one call, in a graph of many: launched one by one they would wait for the host."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    times: list[float] = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return 1000 * min(times) / calls


def tiles_of(kernel: Kernel, layer: Layer) -> Iterator[Tile]:
    wide = layer.before * layer.after > 32 * 32
    gaps = kernel == "inputs" and layer.stride > 1
    for tile in TILES[kernel]:
        if tile.across == 1 or not (wide or gaps):
            yield tile


def main() -> None:
    for kernel in sys.argv[1:] or TILES:
        for layer in LAYERS:
            for images in BATCHES[kernel]:  # type: ignore[index]
                found = {
                    tile: microseconds(work(kernel, layer, images, tile))  # type: ignore[arg-type]
                    for tile in tiles_of(kernel, layer)  # type: ignore[arg-type]
                }
                used = tile_for(
                    kernel,  # type: ignore[arg-type]
                    before=layer.before,
                    after=layer.after,
                    images=images,
                )
                ranked = sorted(found.items(), key=lambda item: item[1])
                print(kernel, layer, images, f"in use: {found.get(used, float('nan')):.1f}")
                for tile, time in ranked[:4]:
                    print(f"    {time:7.1f} us  {tile}", flush=True)


if __name__ == "__main__":
    main()

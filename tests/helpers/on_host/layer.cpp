#include "cuda.h"
#include "training_layer.cu"

static_assert(sizeof(Shared) == SHARED_BYTES, "the host gives a thread block what it takes");

extern "C" void run_layer_forward(int grid, const Chunk* raw_before, const float* sums_before,
                                  const float* scale, const float* shift, const uint4* weights,
                                  const Chunk* shortcut, Chunk* active, Chunk* raw, float* sums,
                                  int total, int images) {
    run_grid(grid, THREADS_FORWARD, [=] {
        layer_forward(raw_before, sums_before, scale, shift, weights, shortcut, active, raw, sums,
                      total, images);
    });
}

extern "C" void run_layer_backward(int grid, const Chunk* found, const Chunk* raw,
                                   const float* sums, const float* gradient_sums,
                                   const float* scale, const Chunk* skip, const uint4* weights,
                                   const Chunk* raw_before, const float* sums_before,
                                   const float* scale_before, const float* shift_before,
                                   const Chunk* shortcut, Chunk* gradient, Chunk* found_before,
                                   float* gradient_sums_before, float* weights_gradient, int total,
                                   int images, int halved) {
    run_grid(grid, THREADS_BACKWARD, [=] {
        layer_backward(found, raw, sums, gradient_sums, scale, skip, weights, raw_before,
                       sums_before, scale_before, shift_before, shortcut, gradient, found_before,
                       gradient_sums_before, weights_gradient, total, images, halved);
    });
}

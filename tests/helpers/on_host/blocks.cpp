// The kernels of stage.cu and pipelined_stage.cu, which are launched alike. KERNELS is one of these
// files, and PROGRAM the name of its kernel.

#include "cuda.h"
#include KERNELS

#define JOIN_NAMES(left, right) left##right
#define JOIN(left, right) JOIN_NAMES(left, right)
#define BACKWARD JOIN(PROGRAM, _backward)

extern "C" void JOIN(run_, PROGRAM)(int grid, const Chunk* active, const Chunk* raw,
                                    Chunk* active_out, Chunk* raw_out, const uint4* weights,
                                    const float2* scale, const float2* shift, Signs* signs,
                                    int images, int residual_blocks) {
    run_grid(grid, THREADS, [=] {
        PROGRAM(active, raw, active_out, raw_out, weights, scale, shift, signs, images,
                residual_blocks);
    });
}

#if SIGNS
extern "C" void JOIN(run_, BACKWARD)(int grid, const Chunk* gradient, Chunk* gradient_out,
                                     const uint4* weights, const float2* scale,
                                     const Signs* signs, int active_shortcut, int images,
                                     int residual_blocks) {
    run_grid(grid, THREADS, [=] {
        BACKWARD(gradient, gradient_out, weights, scale, signs, active_shortcut, images,
                 residual_blocks);
    });
}
#endif

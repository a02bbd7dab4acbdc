// The kernels of stage.cu and deep.cu, which are launched alike. KERNELS is one of them, and PROGRAM
// the name of its kernel.

#include "cuda.h"
#include KERNELS

#define JOIN_NAMES(left, right) left##right
#define JOIN(left, right) JOIN_NAMES(left, right)
#define BACK JOIN(PROGRAM, _back)

extern "C" void JOIN(run_, PROGRAM)(int groups, const Chunk* active, const Chunk* raw,
                                    Chunk* active_out, Chunk* raw_out, const uint4* weights,
                                    const float2* scale, const float2* shift, Signs* signs,
                                    int images, int blocks) {
    run_groups(groups, THREADS, [=] {
        PROGRAM(active, raw, active_out, raw_out, weights, scale, shift, signs, images, blocks);
    });
}

#if SIGNS
extern "C" void JOIN(run_, BACK)(int groups, const Chunk* gradient, Chunk* gradient_out,
                                 const uint4* weights, const float2* scale, const Signs* signs,
                                 int active_shortcut, int images, int blocks) {
    run_groups(groups, THREADS, [=] {
        BACK(gradient, gradient_out, weights, scale, signs, active_shortcut, images, blocks);
    });
}
#endif

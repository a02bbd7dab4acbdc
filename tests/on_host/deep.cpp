#include "cuda.h"
#include "deep.cu"

extern "C" void run_deep(int groups, const Chunk* active, const Chunk* raw, Chunk* active_out,
                         Chunk* raw_out, const uint4* weights, const float2* scale,
                         const float2* shift, Signs* signs, int images, int blocks) {
    run_groups(groups, THREADS, [=] {
        deep(active, raw, active_out, raw_out, weights, scale, shift, signs, images, blocks);
    });
}

#if SIGNS
extern "C" void run_deep_back(int groups, const Chunk* gradient, Chunk* gradient_out,
                              const uint4* weights, const float2* scale, const Signs* signs,
                              int active_shortcut, int images, int blocks) {
    run_groups(groups, THREADS, [=] {
        deep_back(gradient, gradient_out, weights, scale, signs, active_shortcut, images, blocks);
    });
}
#endif

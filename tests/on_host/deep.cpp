#include "cuda.h"
#include "deep.cu"

extern "C" void run_deep(int groups, const Chunk* active, const Chunk* raw, Chunk* active_out,
                         Chunk* raw_out, const uint4* weights, const float2* scale,
                         const float2* shift, int images, int blocks) {
    run_groups(groups, THREADS, [=] {
        deep(active, raw, active_out, raw_out, weights, scale, shift, images, blocks);
    });
}

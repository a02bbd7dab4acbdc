// One convolution of a ResNet in training mode, with the norms on both sides of it.
//
// In training a norm needs sums over the whole batch, so a kernel ends where they are made, and the
// next begins by using them:
//
//   forward:   activations = act(norm(raw before)); raw = conv(activations) + shortcut; its sums
//   backward:  gradient of raw = norm's gradient + skip; that of the activations = its transposed
//              convolution + shortcut; through act to that of the norm before, and its sums;
//              beside it, that of the weights
//
// What was computed at the start is written where other kernels read it. A thread block takes
// BLOCK_LINES lines of an image, and reads one more on either side.
//
// What a thread block keeps of each channel are CONSTANTS rows in shared memory; training_layer.py
// numbers them.

constexpr bool NARROW = WIDTH == 8;  // a thread block takes a whole image
constexpr int PIXELS = (BLOCK_LINES + 2) * PITCH + 1;
constexpr int OWN = BLOCK_LINES * WIDTH + 8 / PLANES;  // such that planes begin in different banks
constexpr int BANDS = BLOCK_LINES / LINES;
constexpr int WARP_TILES = STRIPS * BANDS;  // of 8 lines of 16 pixels, or of 8
constexpr int WARPS = WARP_TILES * SLICES;
constexpr int SIZE = HEIGHT * WIDTH * PLANES;  // chunks of an image

#include "weight_gradient.cuh"

constexpr int THREADS_FORWARD = 32 * WARPS;
constexpr int THREADS_BACKWARD = 32 * (WARPS + WEIGHT_WARPS);

#include "thread_block.cuh"

extern "C" __global__ void __launch_bounds__(THREADS_FORWARD)
    layer_forward(const Chunk* __restrict__ raw_before, const float* __restrict__ sums_before,
                  const float* __restrict__ scale, const float* __restrict__ shift,
                  const uint4* __restrict__ weights, const Chunk* __restrict__ shortcut,
                  Chunk* active, Chunk* raw, float* sums, int total, int images) {
    extern __shared__ Chunk memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const WarpTile warp;
    // All loads are under way before the first is waited for.
    copy<THREADS_FORWARD>(shared, weights, shortcut, warp);
    using Turns = Turn<THREADS_FORWARD>;
    Chunk values[Turns::COUNT];
#pragma unroll
    for (int turn = 0; turn < Turns::COUNT; ++turn)
        values[turn] = raw_before[Turns(warp, turn).chunk(warp)];
    const float share = 1.f / (static_cast<float>(images) * HEIGHT * WIDTH);
    if (threadIdx.x < CHANNELS) {
        const int channel = threadIdx.x;
        const Norm norm(sums_before, total, channel, share);
        shared.constants[FACTOR_BEFORE][channel] = norm.inverse * scale[channel];
        shared.constants[OFFSET_BEFORE][channel] =
            shift[channel] - norm.mean * norm.inverse * scale[channel];
    }
    __syncthreads();
    fill<THREADS_FORWARD>(shared, active, warp, [&](int turn, int plane) {
        Chunk chunk = values[turn];
        for (int pair = 0; pair < 4; ++pair) {
            const int channel = 8 * plane + 2 * pair;
            float made[2];
            unpack(chunk.pairs[pair], made[0], made[1]);
            for (int odd = 0; odd < 2; ++odd)
                made[odd] = activate(made[odd], shared.constants[FACTOR_BEFORE][channel + odd],
                                     shared.constants[OFFSET_BEFORE][channel + odd]);
            chunk.pairs[pair] = pack(made[0], made[1]);
        }
        return chunk;
    });

    float mine[2][2][2] = {};
    convolve<PIXELS>(
        shared.planes, warp.band, warp.column, weights_of(shared, weights, warp),
        [&](int line, int n8, int right, float low, float high) {
            const int pair = LANE % 4;
            if (shortcut != nullptr)
                add(shared.own[warp.own(line, n8, right)].pairs[pair], low, high);
            const uint32_t both = pack(low, high);
            raw[warp.chunk(line, n8, right)].pairs[pair] = both;
            // Of what was written, not of what it was rounded from: the norm's output has mean 0.
            unpack(both, low, high);
            mine[0][n8][0] += low, mine[0][n8][1] += high;
            mine[1][n8][0] += low * low, mine[1][n8][1] += high * high;
        });
    keep_sums(shared, mine);
    __syncthreads();
    add_sums(shared, sums, total);
}

extern "C" __global__ void __launch_bounds__(THREADS_BACKWARD, 512 / THREADS_BACKWARD)
    layer_backward(const Chunk* __restrict__ found, const Chunk* __restrict__ raw,
                   const float* __restrict__ sums, const float* __restrict__ gradient_sums,
                   const float* __restrict__ scale, const Chunk* __restrict__ skip,
                   const uint4* __restrict__ weights, const Chunk* __restrict__ raw_before,
                   const float* __restrict__ sums_before, const float* __restrict__ scale_before,
                   const float* __restrict__ shift_before, const Chunk* __restrict__ shortcut,
                   Chunk* gradient, Chunk* found_before, float* gradient_sums_before,
                   float* weights_gradient, int total, int images, int halved) {
    extern __shared__ Chunk memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const WarpTile warp;
    copy<THREADS_BACKWARD>(shared, weights, raw_before, warp);
    using Turns = Turn<THREADS_BACKWARD>;
    Chunk inputs[Turns::COUNT][3];
#pragma unroll
    for (int turn = 0; turn < Turns::COUNT; ++turn) {
        const Turns at(warp, turn);
        inputs[turn][0] = found[at.chunk(warp)];
        inputs[turn][1] = raw[at.chunk(warp)];
        inputs[turn][2] = Chunk{{0, 0, 0, 0}};
        if (skip != nullptr) inputs[turn][2] = skip[halved ? at.halved(warp) : at.chunk(warp)];
    }
    const float share = 1.f / (static_cast<float>(images) * HEIGHT * WIDTH);
    static_assert(THREADS_BACKWARD >= 2 * CHANNELS, "each norm's channel needs a thread");
    if (threadIdx.x < CHANNELS) {
        const int channel = threadIdx.x;
        // The norm's gradient is linear in what was found and in its input.
        const Norm norm(sums, total, channel, share);
        const float factor = scale[channel] * norm.inverse;
        const float tilt = gradient_sums[total + channel] * share * norm.inverse;
        shared.constants[FOUND_FACTOR][channel] = factor;
        shared.constants[RAW_FACTOR][channel] = -factor * tilt;
        shared.constants[GRADIENT_OFFSET][channel] =
            factor * (norm.mean * tilt - gradient_sums[channel] * share);
    } else if (threadIdx.x < 2 * CHANNELS) {
        const int channel = threadIdx.x - CHANNELS;
        const Norm before(sums_before, total, channel, share);
        const float factor = before.inverse * scale_before[channel];
        shared.constants[MEAN_BEFORE][channel] = before.mean;
        shared.constants[INVERSE_BEFORE][channel] = before.inverse;
        shared.constants[FACTOR_BEFORE][channel] = factor;
        shared.constants[OFFSET_BEFORE][channel] = shift_before[channel] - before.mean * factor;
    }
    __syncthreads();
    const float part_of_skip = halved ? 0.25f : 1.f;
    fill<THREADS_BACKWARD>(shared, gradient, warp, [&](int turn, int plane) {
        Chunk chunk;
        for (int pair = 0; pair < 4; ++pair) {
            const int channel = 8 * plane + 2 * pair;
            float parts[3][2], made[2];
            for (int each = 0; each < 3; ++each)
                unpack(inputs[turn][each].pairs[pair], parts[each][0], parts[each][1]);
            for (int odd = 0; odd < 2; ++odd)
                made[odd] = parts[0][odd] * shared.constants[FOUND_FACTOR][channel + odd] +
                            parts[1][odd] * shared.constants[RAW_FACTOR][channel + odd] +
                            shared.constants[GRADIENT_OFFSET][channel + odd] +
                            parts[2][odd] * part_of_skip;
            chunk.pairs[pair] = pack(made[0], made[1]);
        }
        return chunk;
    });

    WideWeightGradient weight_gradient(WARP - WARPS);
    if (WARP < WARPS) {
        float mine[2][2][2] = {};
        convolve<PIXELS>(
            shared.planes, warp.band, warp.column, weights_of(shared, weights, warp),
            [&](int line, int n8, int right, float low, float high) {
                const int at = warp.chunk(line, n8, right), pair = LANE % 4;
                const int channel = 16 * warp.slice + 8 * n8 + 2 * pair;
                if (shortcut != nullptr) add(shortcut[at].pairs[pair], low, high);
                float known[2];
                unpack(shared.own[warp.own(line, n8, right)].pairs[pair], known[0], known[1]);
                for (int odd = 0; odd < 2; ++odd)
                    if (!(known[odd] * shared.constants[FACTOR_BEFORE][channel + odd] +
                              shared.constants[OFFSET_BEFORE][channel + odd] >
                          0.f))
                        (odd ? high : low) *= SLOPE;
                const uint32_t both = pack(low, high);
                found_before[at].pairs[pair] = both;
                unpack(both, low, high);
                mine[0][n8][0] += low, mine[0][n8][1] += high;
                mine[1][n8][0] += low * known[0], mine[1][n8][1] += high * known[1];
            });
        for (int each = 0; each < 4; ++each) {
            const int n8 = each / 2, odd = each % 2;
            const int channel = 16 * warp.slice + 8 * n8 + 2 * (LANE % 4) + odd;
            mine[1][n8][odd] -= mine[0][n8][odd] * shared.constants[MEAN_BEFORE][channel];
            mine[1][n8][odd] *= shared.constants[INVERSE_BEFORE][channel];
        }
        keep_sums(shared, mine);
    } else if constexpr (NARROW) {
        NarrowWeightGradient(WARP - WARPS)
            .run(shared.planes, shared.own, shared.scratch, shared.constants, weights_gradient);
    } else {
        weight_gradient.run(shared.planes, shared.own, shared.constants);
    }
    __syncthreads();
    if (WARP < WARPS) add_sums(shared, gradient_sums_before, total);
    if constexpr (!NARROW) {
        float* const partial = reinterpret_cast<float*>(shared.planes);
        if (WARP >= WARPS) weight_gradient.keep(partial);
        __syncthreads();
        add_weights<THREADS_BACKWARD>(partial, weights_gradient);
    }
}

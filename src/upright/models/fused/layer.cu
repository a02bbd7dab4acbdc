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
// What was computed at the start is written where other kernels read it. A group of threads takes
// GROUP lines of an image, and reads one more on either side.

constexpr bool NARROW = WIDTH == 8;  // a group takes a whole image
constexpr int PIXELS = (GROUP + 2) * PITCH + 1;
constexpr int OWN = GROUP * WIDTH + 8 / PLANES;  // such that planes begin in different banks
constexpr int BANDS = GROUP / LINES;
constexpr int TILES = STRIPS * BANDS;  // what a warp convolves: 8 lines of 16 pixels, or of 8
constexpr int WARPS = TILES * DEPTH;
constexpr int SIZE = HEIGHT * WIDTH * PLANES;  // chunks of an image

#include "weigh.cuh"

constexpr int THREADS_FORWARD = 32 * WARPS;
constexpr int THREADS_BACKWARD = 32 * (WARPS + WEIGHERS);

#include "group.cuh"

extern "C" __global__ void __launch_bounds__(THREADS_FORWARD)
    layer_forward(const Chunk* __restrict__ raw_before, const float* __restrict__ sums_before,
                  const float* __restrict__ scale, const float* __restrict__ shift,
                  const uint4* __restrict__ weights, const Chunk* __restrict__ shortcut,
                  Chunk* active, Chunk* raw, float* sums, int total, int images) {
    extern __shared__ Chunk memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Part part;
    // All loads are under way before the first is waited for.
    copy<THREADS_FORWARD>(shared, weights, shortcut, part);
    using Turns = Turn<THREADS_FORWARD>;
    Chunk values[Turns::COUNT];
#pragma unroll
    for (int turn = 0; turn < Turns::COUNT; ++turn)
        values[turn] = raw_before[Turns(part, turn).chunk(part)];
    const float share = 1.f / (static_cast<float>(images) * HEIGHT * WIDTH);
    if (threadIdx.x < CHANNELS) {
        const int channel = threadIdx.x;
        const Norm norm(sums_before, total, channel, share);
        shared.constants[0][channel] = norm.inverse * scale[channel];
        shared.constants[1][channel] = shift[channel] - norm.mean * norm.inverse * scale[channel];
    }
    __syncthreads();
    fill<THREADS_FORWARD>(shared, active, part, [&](int turn, int plane) {
        Chunk chunk = values[turn];
        for (int pair = 0; pair < 4; ++pair) {
            const int channel = 8 * plane + 2 * pair;
            float made[2];
            unpack(chunk.pairs[pair], made[0], made[1]);
            for (int odd = 0; odd < 2; ++odd)
                made[odd] = activate(made[odd], shared.constants[0][channel + odd],
                                     shared.constants[1][channel + odd]);
            chunk.pairs[pair] = pack(made[0], made[1]);
        }
        return chunk;
    });

    float mine[2][2][2] = {};
    convolve<PIXELS>(
        shared.planes, part.band, part.column, weights_of(shared, weights, part),
        [&](int line, int side, int right, float low, float high) {
            const int pair = LANE % 4;
            if (shortcut != nullptr)
                add(shared.own[part.own(line, side, right)].pairs[pair], low, high);
            const uint32_t both = pack(low, high);
            raw[part.chunk(line, side, right)].pairs[pair] = both;
            // Of what was written, not of what it was rounded from: the norm's output has mean 0.
            unpack(both, low, high);
            mine[0][side][0] += low, mine[0][side][1] += high;
            mine[1][side][0] += low * low, mine[1][side][1] += high * high;
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
    const Part part;
    copy<THREADS_BACKWARD>(shared, weights, raw_before, part);
    using Turns = Turn<THREADS_BACKWARD>;
    Chunk inputs[Turns::COUNT][3];
#pragma unroll
    for (int turn = 0; turn < Turns::COUNT; ++turn) {
        const Turns at(part, turn);
        inputs[turn][0] = found[at.chunk(part)];
        inputs[turn][1] = raw[at.chunk(part)];
        inputs[turn][2] = Chunk{{0, 0, 0, 0}};
        if (skip != nullptr) inputs[turn][2] = skip[halved ? at.halved(part) : at.chunk(part)];
    }
    const float share = 1.f / (static_cast<float>(images) * HEIGHT * WIDTH);
    static_assert(THREADS_BACKWARD >= 2 * CHANNELS, "each norm's channel needs a thread");
    if (threadIdx.x < CHANNELS) {
        const int channel = threadIdx.x;
        // The norm's gradient is linear in what was found and in its input.
        const Norm norm(sums, total, channel, share);
        const float factor = scale[channel] * norm.inverse;
        const float tilt = gradient_sums[total + channel] * share * norm.inverse;
        shared.constants[0][channel] = factor;
        shared.constants[1][channel] = -factor * tilt;
        shared.constants[2][channel] =
            factor * (norm.mean * tilt - gradient_sums[channel] * share);
    } else if (threadIdx.x < 2 * CHANNELS) {
        const int channel = threadIdx.x - CHANNELS;
        const Norm before(sums_before, total, channel, share);
        const float factor = before.inverse * scale_before[channel];
        shared.constants[3][channel] = before.mean;
        shared.constants[4][channel] = before.inverse;
        shared.constants[5][channel] = factor;
        shared.constants[6][channel] = shift_before[channel] - before.mean * factor;
    }
    __syncthreads();
    const float part_of_skip = halved ? 0.25f : 1.f;
    fill<THREADS_BACKWARD>(shared, gradient, part, [&](int turn, int plane) {
        Chunk chunk;
        for (int pair = 0; pair < 4; ++pair) {
            const int channel = 8 * plane + 2 * pair;
            float parts[3][2], made[2];
            for (int each = 0; each < 3; ++each)
                unpack(inputs[turn][each].pairs[pair], parts[each][0], parts[each][1]);
            for (int odd = 0; odd < 2; ++odd)
                made[odd] = parts[0][odd] * shared.constants[0][channel + odd] +
                            parts[1][odd] * shared.constants[1][channel + odd] +
                            shared.constants[2][channel + odd] + parts[2][odd] * part_of_skip;
            chunk.pairs[pair] = pack(made[0], made[1]);
        }
        return chunk;
    });

    WideWeigher weigher(WARP - WARPS);
    if (WARP < WARPS) {
        float mine[2][2][2] = {};
        convolve<PIXELS>(
            shared.planes, part.band, part.column, weights_of(shared, weights, part),
            [&](int line, int side, int right, float low, float high) {
                const int at = part.chunk(line, side, right), pair = LANE % 4;
                const int channel = 16 * part.half + 8 * side + 2 * pair;
                if (shortcut != nullptr) add(shortcut[at].pairs[pair], low, high);
                float known[2];
                unpack(shared.own[part.own(line, side, right)].pairs[pair], known[0], known[1]);
                for (int odd = 0; odd < 2; ++odd)
                    if (!(known[odd] * shared.constants[5][channel + odd] +
                              shared.constants[6][channel + odd] >
                          0.f))
                        (odd ? high : low) *= SLOPE;
                const uint32_t both = pack(low, high);
                found_before[at].pairs[pair] = both;
                unpack(both, low, high);
                mine[0][side][0] += low, mine[0][side][1] += high;
                mine[1][side][0] += low * known[0], mine[1][side][1] += high * known[1];
            });
        for (int each = 0; each < 4; ++each) {
            const int side = each / 2, odd = each % 2;
            const int channel = 16 * part.half + 8 * side + 2 * (LANE % 4) + odd;
            mine[1][side][odd] -= mine[0][side][odd] * shared.constants[3][channel];
            mine[1][side][odd] *= shared.constants[4][channel];
        }
        keep_sums(shared, mine);
    } else if constexpr (NARROW) {
        NarrowWeigher(WARP - WARPS).run(shared.planes, shared.own, shared.more, &shared.constants[5],
                                        weights_gradient);
    } else {
        weigher.run(shared.planes, shared.own, &shared.constants[5]);
    }
    __syncthreads();
    if (WARP < WARPS) add_sums(shared, gradient_sums_before, total);
    if constexpr (!NARROW) {
        float* const parts = reinterpret_cast<float*>(shared.planes);
        if (WARP >= WARPS) weigher.keep(parts);
        __syncthreads();
        add_weights<THREADS_BACKWARD>(parts, weights_gradient);
    }
}

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

struct Shared {
    Chunk planes[PLANES * PIXELS];
    Chunk own[OWN_ROOM];  // the group's own lines of other activations
    Chunk more[MORE];     // the weights; of a narrow image, what WEIGHERS need
    float constants[7][CHANNELS];
    float partial[WARPS][2][16];
};

// From the sums of a norm's input and of its square, two rows, `total` apart; a pixel's share of the
// batch makes them means.
struct Norm {
    float mean, inverse;
    __device__ Norm(const float* sums, int total, int channel, float share) {
        const float sum = sums[channel], squares = sums[total + channel];
        mean = sum * share;
        inverse = rsqrtf(fmaxf(squares * share - mean * mean, 0.f) + EPSILON);
    }
};

// Where a group of threads, and a warp of it, works.
struct Part {
    int image, line0, half, column, band;
    __device__ Part()
        : image(blockIdx.x / (HEIGHT / GROUP)),
          line0(blockIdx.x % (HEIGHT / GROUP) * GROUP),
          half(WARP % DEPTH),
          column(WARP / DEPTH % STRIPS * 16),
          band(WARP / (DEPTH * STRIPS) * LINES) {}

    // The chunk of which `convolve` gives the thread a pair: in an image, and in the group's lines.
    __device__ int chunk(int line, int side, int right) const {
        const int pixel = (line0 + band + line) * WIDTH + x(right);
        return image * SIZE + pixel * PLANES + 2 * half + side;
    }
    __device__ int own(int line, int side, int right) const {
        return (2 * half + side) * OWN + (band + line) * WIDTH + x(right);
    }

   private:
    __device__ int x(int right) const { return column + static_cast<int>(LANE / 4) + 8 * right; }
};

// Start to copy what a kernel needs after `fill` into shared memory: the weights, if they have room,
// and the group's own lines of some activations, if any.
template <int THREADS>
__device__ __forceinline__ void copy(Shared& shared, const uint4* weights, const Chunk* own,
                                     const Part& part) {
    if (!NARROW)
        for (int each = threadIdx.x; each < MORE; each += THREADS)
            copy_later(shared.more + each, weights + each);
    if (own != nullptr) {
        own += part.image * SIZE + part.line0 * WIDTH * PLANES;
        for (int each = threadIdx.x; each < GROUP * WIDTH * PLANES; each += THREADS)
            copy_later(shared.own + each % PLANES * OWN + each / PLANES, own + each);
    }
    end_lot();
}

// A warp's weights.
__device__ __forceinline__ const uint4* weights_of(const Shared& shared, const uint4* weights,
                                                   const Part& part) {
    if (!NARROW) weights = reinterpret_cast<const uint4*>(shared.more);
    return weights + part.half * 9 * DEPTH * 32;
}

// The chunks that a thread of `THREADS` takes of the group's lines and of the two around them, one in
// each turn. Outside the image, that of the nearest pixel inside.
template <int THREADS>
struct Turn {
    static constexpr int ALL = (GROUP + 2) * WIDTH * PLANES;
    static constexpr int COUNT = (ALL + THREADS - 1) / THREADS;
    int plane, column, line, y, near;

    __device__ explicit Turn(const Part& part, int turn) {
        const int each = min(turn * THREADS + static_cast<int>(threadIdx.x), ALL - 1);
        plane = each % PLANES, column = each / PLANES % WIDTH;
        line = each / (PLANES * WIDTH) - 1, y = part.line0 + line;
        near = max(0, min(y, HEIGHT - 1));
    }
    __device__ int chunk(const Part& part) const {
        return part.image * SIZE + (near * WIDTH + column) * PLANES + plane;
    }
    // Of a shortcut's output, which is averaged over two by two pixels and has as many channels more.
    __device__ int halved(const Part& part) const {
        const int line = part.image * (HEIGHT / 2) + near / 2;
        return (line * (WIDTH / 2) + column / 2) * 2 * PLANES + PLANES / 2 + plane;
    }
};

// Put the chunk that a function gives for each turn into shared memory; that of the group's own lines
// also where `kept` says, if anywhere. After it, all copies are there.
template <int THREADS, class Make>
__device__ __forceinline__ void fill(Shared& shared, Chunk* kept, const Part& part, Make make) {
    constexpr Chunk NOTHING{{0, 0, 0, 0}};
    for (int each = threadIdx.x; each < (GROUP + 3) * PLANES; each += THREADS)
        shared.planes[each % PLANES * PIXELS + each / PLANES * PITCH] = NOTHING;
#pragma unroll
    for (int turn = 0; turn < Turn<THREADS>::COUNT; ++turn) {
        const Turn<THREADS> at(part, turn);
        const Chunk chunk = make(turn, at.plane);
        shared.planes[at.plane * PIXELS + place_of(at.line, at.column)] =
            at.near == at.y ? chunk : NOTHING;
        if (kept != nullptr && at.line >= 0 && at.line < GROUP) kept[at.chunk(part)] = chunk;
    }
    await_lots<0>();
    __syncthreads();
}

// Keep a warp's sums of two channels on each of two sides.
__device__ __forceinline__ void keep_sums(Shared& shared, const float (&mine)[2][2][2]) {
    for (int row = 0; row < 2; ++row)
        for (int side = 0; side < 2; ++side)
            for (int odd = 0; odd < 2; ++odd) {
                float value = mine[row][side][odd];
                for (int bit = 4; bit < 32; bit *= 2) value += exchange(value, bit);
                if (LANE < 4) shared.partial[WARP][row][8 * side + 2 * LANE + odd] = value;
            }
}

// Add what all warps kept to the sums of the batch.
__device__ __forceinline__ void add_sums(const Shared& shared, float* sums, int total) {
    static_assert(THREADS_FORWARD >= 2 * CHANNELS, "each sum needs a thread");
    if (threadIdx.x < 2 * CHANNELS) {
        const int row = threadIdx.x / CHANNELS, channel = threadIdx.x % CHANNELS;
        float value = 0.f;
        for (int warp = channel / 16; warp < WARPS; warp += DEPTH)
            value += shared.partial[warp][row][channel % 16];
        atomicAdd(sums + row * total + channel, value);
    }
}

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

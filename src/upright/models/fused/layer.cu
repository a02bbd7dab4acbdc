// One convolution of a ResNet in training mode, with the norms on both sides of it.
//
// In training a norm needs sums over the whole batch, so a kernel ends where they are made, and the
// next begins by using them:
//
//   forward:   activations = act(norm(raw before)); raw = conv(activations) + shortcut; its sums
//   backward:  gradient of raw = norm's gradient + skip; that of the activations = its transposed
//              convolution + shortcut; through act to that of the norm before, and its sums
//
// What was computed at the start is written, too: other kernels read it. A group of threads takes
// GROUP lines of an image, and reads one more on either side.

constexpr int PIXELS = (GROUP + 2) * PITCH + 1;
constexpr int BANDS = GROUP / LINES;
constexpr int WARPS = STRIPS * BANDS * DEPTH;
constexpr int THREADS = 32 * WARPS;
constexpr int SIZE = HEIGHT * WIDTH * PLANES;  // chunks of an image

struct Shared {
    Chunk planes[PLANES * PIXELS];
    float constants[5][CHANNELS];
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

// Apply a function to each chunk of the group's lines and of the two around them, and put the
// results into shared memory; those of the group's own lines also where `kept` says.
template <class Make>
__device__ __forceinline__ void fill(Shared& shared, Chunk* kept, int image, int line0, Make make) {
    constexpr Chunk NOTHING{{0, 0, 0, 0}};
    for (int each = threadIdx.x; each < (GROUP + 3) * PLANES; each += THREADS)
        shared.planes[each % PLANES * PIXELS + each / PLANES * PITCH] = NOTHING;
    constexpr int ALL = (GROUP + 2) * WIDTH * PLANES;
    // Without branches around loads, so that several are under way at once.
#pragma unroll 3
    for (int turn = 0; turn < (ALL + THREADS - 1) / THREADS; ++turn) {
        const int each = min(turn * THREADS + static_cast<int>(threadIdx.x), ALL - 1);
        const int plane = each % PLANES, column = each / PLANES % WIDTH;
        const int line = each / (PLANES * WIDTH) - 1, y = line0 + line;
        const int near = max(0, min(y, HEIGHT - 1));
        const int at = image * SIZE + (near * WIDTH + column) * PLANES + plane;
        const Chunk chunk = make(at, plane);
        shared.planes[plane * PIXELS + place_of(line, column)] = near == y ? chunk : NOTHING;
        if (line >= 0 && line < GROUP) kept[at] = chunk;
    }
    __syncthreads();
}

// Where a group of threads, and a warp of it, works.
struct Part {
    int image, line0, half, column, band;
    __device__ Part()
        : image(blockIdx.x / (HEIGHT / GROUP)),
          line0(blockIdx.x % (HEIGHT / GROUP) * GROUP),
          half(WARP % DEPTH),
          column(WARP / DEPTH % STRIPS * 16),
          band(WARP / (DEPTH * STRIPS) * LINES) {}

    // The chunk of which `convolve` gives the thread a pair.
    __device__ int chunk(int line, int side, int right) const {
        const int x = column + static_cast<int>(LANE / 4) + 8 * right;
        return image * SIZE + ((line0 + band + line) * WIDTH + x) * PLANES + 2 * half + side;
    }
};

// Add a warp's sums of two channels on each of two sides to those of the batch.
__device__ __forceinline__ void add_sums(Shared& shared, const float (&mine)[2][2][2], float* sums,
                                         int total) {
    for (int row = 0; row < 2; ++row)
        for (int side = 0; side < 2; ++side)
            for (int odd = 0; odd < 2; ++odd) {
                float value = mine[row][side][odd];
                for (int bit = 4; bit < 32; bit *= 2) value += exchange(value, bit);
                if (LANE < 4) shared.partial[WARP][row][8 * side + 2 * LANE + odd] = value;
            }
    __syncthreads();
    static_assert(THREADS >= 2 * CHANNELS, "each sum needs a thread");
    if (threadIdx.x < 2 * CHANNELS) {
        const int row = threadIdx.x / CHANNELS, channel = threadIdx.x % CHANNELS;
        float value = 0.f;
        for (int warp = channel / 16; warp < WARPS; warp += DEPTH)
            value += shared.partial[warp][row][channel % 16];
        atomicAdd(sums + row * total + channel, value);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_forward(const Chunk* __restrict__ raw_before, const float* __restrict__ sums_before,
                  const float* __restrict__ scale, const float* __restrict__ shift,
                  const uint4* __restrict__ weights, const Chunk* __restrict__ shortcut,
                  Chunk* active, Chunk* raw, float* sums, int total, int images) {
    extern __shared__ Chunk memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Part part;
    const float share = 1.f / (static_cast<float>(images) * HEIGHT * WIDTH);
    if (threadIdx.x < CHANNELS) {
        const int channel = threadIdx.x;
        const Norm norm(sums_before, total, channel, share);
        shared.constants[0][channel] = norm.inverse * scale[channel];
        shared.constants[1][channel] = shift[channel] - norm.mean * norm.inverse * scale[channel];
    }
    __syncthreads();
    fill(shared, active, part.image, part.line0, [&](int at, int plane) {
        Chunk chunk = raw_before[at];
        for (int pair = 0; pair < 4; ++pair) {
            const int channel = 8 * plane + 2 * pair;
            float low, high;
            unpack(chunk.pairs[pair], low, high);
            low = low * shared.constants[0][channel] + shared.constants[1][channel];
            high = high * shared.constants[0][channel + 1] + shared.constants[1][channel + 1];
            chunk.pairs[pair] = pack(fmaxf(low, low * SLOPE), fmaxf(high, high * SLOPE));
        }
        return chunk;
    });

    float mine[2][2][2] = {};
    convolve<PIXELS>(
        shared.planes, part.band, part.column, weights + part.half * 9 * DEPTH * 32,
        [&](int line, int side, int right, float low, float high) {
            const int at = part.chunk(line, side, right), pair = LANE % 4;
            if (shortcut != nullptr) add(shortcut[at].pairs[pair], low, high);
            const uint32_t both = pack(low, high);
            raw[at].pairs[pair] = both;
            // Of what was written, not of what it was rounded from: the norm's output has mean 0.
            unpack(both, low, high);
            mine[0][side][0] += low, mine[0][side][1] += high;
            mine[1][side][0] += low * low, mine[1][side][1] += high * high;
        });
    add_sums(shared, mine, sums, total);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_backward(const Chunk* __restrict__ found, const Chunk* __restrict__ raw,
                   const float* __restrict__ sums, const float* __restrict__ gradient_sums,
                   const float* __restrict__ scale, const Chunk* __restrict__ skip,
                   const uint4* __restrict__ weights, const Chunk* __restrict__ raw_before,
                   const float* __restrict__ sums_before, const float* __restrict__ scale_before,
                   const float* __restrict__ shift_before, const Chunk* __restrict__ shortcut,
                   Chunk* gradient, Chunk* found_before, float* gradient_sums_before, int total,
                   int images) {
    extern __shared__ Chunk memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Part part;
    const float share = 1.f / (static_cast<float>(images) * HEIGHT * WIDTH);
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
        const Norm before(sums_before, total, channel, share);
        shared.constants[3][channel] = before.mean;
        shared.constants[4][channel] = before.inverse;
    }
    __syncthreads();
    fill(shared, gradient, part.image, part.line0, [&](int at, int plane) {
        Chunk chunk = found[at];
        const Chunk values = raw[at], more = skip == nullptr ? Chunk{{0, 0, 0, 0}} : skip[at];
        for (int pair = 0; pair < 4; ++pair) {
            const int channel = 8 * plane + 2 * pair;
            float parts[3][2];
            unpack(chunk.pairs[pair], parts[0][0], parts[0][1]);
            unpack(values.pairs[pair], parts[1][0], parts[1][1]);
            unpack(more.pairs[pair], parts[2][0], parts[2][1]);
            float made[2];
            for (int odd = 0; odd < 2; ++odd)
                made[odd] = parts[0][odd] * shared.constants[0][channel + odd] +
                            parts[1][odd] * shared.constants[1][channel + odd] +
                            shared.constants[2][channel + odd] + parts[2][odd];
            chunk.pairs[pair] = pack(made[0], made[1]);
        }
        return chunk;
    });

    float mine[2][2][2] = {};
    convolve<PIXELS>(
        shared.planes, part.band, part.column, weights + part.half * 9 * DEPTH * 32,
        [&](int line, int side, int right, float low, float high) {
            const int at = part.chunk(line, side, right), pair = LANE % 4;
            const int channel = 16 * part.half + 8 * side + 2 * pair;
            if (shortcut != nullptr) add(shortcut[at].pairs[pair], low, high);
            float normal[2];
            unpack(raw_before[at].pairs[pair], normal[0], normal[1]);
            for (int odd = 0; odd < 2; ++odd) {
                normal[odd] = (normal[odd] - shared.constants[3][channel + odd]) *
                              shared.constants[4][channel + odd];
                const float normed =
                    normal[odd] * scale_before[channel + odd] + shift_before[channel + odd];
                if (!(normed > 0.f)) (odd ? high : low) *= SLOPE;
            }
            const uint32_t both = pack(low, high);
            found_before[at].pairs[pair] = both;
            unpack(both, low, high);
            mine[0][side][0] += low, mine[0][side][1] += high;
            mine[1][side][0] += low * normal[0], mine[1][side][1] += high * normal[1];
        });
    add_sums(shared, mine, gradient_sums_before, total);
}

// The gradient of a convolution's weights, of activations and of the gradient of its output that
// lie in shared memory: part of training_layer.cu.
//
// For each tap it is the sum over pixels q of activations(q) * gradient(q - tap), where q goes over
// the thread block's own lines: what lies around an image is zero. Pixels are the k16 of the mma,
// so both are read transposed. The activations are made here, of what the norm before the
// convolution read. Warps of their own do it, beside those that convolve.

// A row of a thread block's sums, of one output channel: four rows lie in different banks.
constexpr int PADDING = 8;

// Of lines of sixteen pixels and more: a warp takes sixteen channels before and sixteen after, and
// as many tiles of a strip as let it multiply as much as one that convolves (split-K).
constexpr int SPLITS = STRIPS * (BANDS > SLICES ? BANDS / SLICES : 1);
constexpr int ROW = 9 * CHANNELS + PADDING;
constexpr int SUMS = SPLITS * CHANNELS * ROW / 4;  // chunks; at last they lie over all activations

// Of lines of eight pixels: a warp takes sixteen channels before, and three taps at a time.
constexpr int NARROW_ROW = 3 * 16 + PADDING;
constexpr int NARROW_SUMS = 16 * NARROW_ROW / 4;  // chunks of a warp

constexpr int WEIGHT_WARPS = NARROW ? SLICES : SPLITS * SLICES * SLICES;
constexpr int OWN_ROOM =
    !NARROW && SUMS > PLANES * (PIXELS + OWN) ? SUMS - PLANES * PIXELS : PLANES * OWN;
constexpr int SCRATCH = NARROW ? WEIGHT_WARPS * NARROW_SUMS : 9 * SLICES * SLICES * 32;

using Tap = float[2][4];  // the accumulators of one

// What both have in common: a lane's place in what ldmatrix reads, and its two channels before.
// Of the four matrices: the first and the second plane, of the first and the second eight pixels.
struct WeightGradient {
    int plane, half, pixel;
    float factors[2], offsets[2];

    __device__ WeightGradient() : plane(LANE / 8 % 2), half(LANE / 16), pixel(LANE % 8) {}

    __device__ __forceinline__ void read(const float (*constants)[CHANNELS], int before) {
#pragma unroll
        for (int n8 = 0; n8 < 2; ++n8) {
            const int channel = 16 * before + 8 * n8 + static_cast<int>(LANE / 4);
            factors[n8] = constants[FACTOR_BEFORE][channel];
            offsets[n8] = constants[OFFSET_BEFORE][channel];
        }
    }

    __device__ __forceinline__ void load(uint32_t (&active)[4], const Chunk* raw) const {
        ldmatrix_transposed(active, raw);
#pragma unroll
        for (int each = 0; each < 4; ++each) {
            float low, high;
            unpack(active[each], low, high);
            active[each] = pack(activate(low, factors[each % 2], offsets[each % 2]),
                                activate(high, factors[each % 2], offsets[each % 2]));
        }
    }

    // For sixteen channels after and before: eight before are the n8 of an mma.
    static __device__ __forceinline__ void add(Tap& accumulators, const uint32_t (&gradient)[4],
                                               const uint32_t (&active)[4]) {
        mma(accumulators[0], gradient, active[0], active[2]);
        mma(accumulators[1], gradient, active[1], active[3]);
    }

    // Put a tap's accumulators into the rows of their output channels.
    static __device__ __forceinline__ void put(float* place, int row, const Tap& accumulators) {
        place += static_cast<int>(LANE / 4) * row + 2 * static_cast<int>(LANE % 4);
#pragma unroll
        for (int each = 0; each < 4; ++each) {
            const int n8 = each / 2, low = each % 2;
            *reinterpret_cast<float2*>(place + 8 * low * row + 8 * n8) =
                float2{accumulators[n8][2 * low], accumulators[n8][2 * low + 1]};
        }
    }
};

struct WideWeightGradient : WeightGradient {
    int split, after, before;
    Tap accumulators[9];

    __device__ explicit WideWeightGradient(unsigned warp)
        : split(SPLITS == 1 ? 0 : warp / (SLICES * SLICES)),
          after(warp / SLICES % SLICES),
          before(warp % SLICES) {}

    __device__ __forceinline__ void run(const Chunk* planes, const Chunk* own,
                                        const float (*constants)[CHANNELS]) {
#pragma unroll
        for (int each = 0; each < 72; ++each) accumulators[each / 8][each / 4 % 2][each % 4] = 0.f;
        read(constants, before);
        constexpr int TURNS = WARP_TILES / SPLITS;
        const int line = split / STRIPS * TURNS * LINES;
        const int column = split % STRIPS * 16 + 8 * half + pixel;
        planes += (2 * after + plane) * PIXELS + place_of(line, column);
        own += (2 * before + plane) * OWN + line * WIDTH + column;
#pragma unroll 1
        for (int turn = 0; turn < TURNS; ++turn, planes += LINES * PITCH, own += LINES * WIDTH)
            walk(planes, own);
    }

    // Down the lines of a tile: what is read of a line of gradients goes with three of activations.
    __device__ __forceinline__ void walk(const Chunk* gradients, const Chunk* raw) {
        uint32_t active[3][4];
#pragma unroll
        for (int line = -1; line <= LINES; ++line) {
            const int next = line + 1;
            if (next < LINES) load(active[next % 3], raw + next * WIDTH);
#pragma unroll
            for (int across = 0; across < 3; ++across) {
                uint32_t gradient[4];
                ldmatrix_transposed(gradient, gradients + line * PITCH + 1 - across);
#pragma unroll
                for (int down = 0; down < 3; ++down) {
                    const int with = line + down - 1;
                    if (with < 0 || with >= LINES) continue;
                    add(accumulators[3 * down + across], gradient, active[with % 3]);
                }
            }
        }
    }

    __device__ __forceinline__ void keep(float* partial) const {
        partial += (split * CHANNELS + 16 * after) * ROW + 16 * before;
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) put(partial + tap * CHANNELS, ROW, accumulators[tap]);
    }
};

// Add what all warps kept to the gradient of the batch: after x 3 x 3 x before.
template <int THREADS>
__device__ __forceinline__ void add_weights(const float* partial, float* out) {
    constexpr int ALL = 9 * CHANNELS * CHANNELS, TURNS = (ALL + THREADS - 1) / THREADS;
#pragma unroll 3
    for (int turn = 0; turn < TURNS; ++turn) {
        // Thread blocks begin at different places: else all would wait for the same ones.
        const int from = (turn + static_cast<int>(blockIdx.x)) % TURNS * THREADS;
        const int each = from + static_cast<int>(threadIdx.x);
        if (each >= ALL) continue;
        const float* const place = partial + each + each / (9 * CHANNELS) * PADDING;
        float value = 0.f;
#pragma unroll
        for (int split = 0; split < SPLITS; ++split) value += place[split * CHANNELS * ROW];
        atomicAdd(out + each, value);
    }
}

// Sixteen pixels are a line and the one four below, such that what is read of gradients for a tap
// also serves the taps above and below it.
struct NarrowWeightGradient : WeightGradient {
    static constexpr int APART = LINES / 2;
    int before;

    __device__ explicit NarrowWeightGradient(int warp) : before(warp) {}

    __device__ __forceinline__ void run(const Chunk* planes, const Chunk* own, Chunk* room,
                                        const float (*constants)[CHANNELS], float* out) {
        read(constants, before);
        float* const mine = reinterpret_cast<float*>(room + before * NARROW_SUMS);
        own += (2 * before + plane) * OWN + APART * half * WIDTH + pixel;
        planes += plane * PIXELS + place_of(APART * half, pixel);
        uint32_t active[APART][4];
#pragma unroll
        for (int line = 0; line < APART; ++line) load(active[line], own + line * WIDTH);
#pragma unroll 1
        for (int turn = 0; turn < 3 * SLICES; ++turn) {
            // Thread blocks begin at different places: else all would wait for the same ones.
            const int after = (turn + static_cast<int>(blockIdx.x)) % SLICES;
            const int across = turn / SLICES;
            Tap accumulators[3] = {};
            column(accumulators, planes + 2 * after * PIXELS + 1 - across, active);
#pragma unroll
            for (int down = 0; down < 3; ++down)
                put(mine + 16 * down, NARROW_ROW, accumulators[down]);
            __syncwarp();
            give(mine, out + (16 * after * 9 + across) * CHANNELS + 16 * before);
            __syncwarp();
        }
    }

    // The three taps of a column.
    __device__ __forceinline__ void column(Tap (&accumulators)[3], const Chunk* gradients,
                                           const uint32_t (&active)[APART][4]) const {
#pragma unroll
        for (int line = -1; line <= APART; ++line) {
            uint32_t gradient[4];
            ldmatrix_transposed(gradient, gradients + line * PITCH);
#pragma unroll
            for (int down = 0; down < 3; ++down) {
                const int with = line + down - 1;
                if (with < 0 || with >= APART) continue;
                add(accumulators[down], gradient, active[with]);
            }
        }
    }

    // Add a warp's sums of three taps to the gradient of the batch.
    __device__ __forceinline__ void give(const float* mine, float* out) const {
#pragma unroll
        for (int turn = 0; turn < 24; ++turn) {
            const int each = 32 * turn + static_cast<int>(LANE), after = each / 48;
            const int down = each / 16 % 3;
            atomicAdd(out + (9 * after + 3 * down) * CHANNELS + each % 16,
                      mine[after * NARROW_ROW + each % 48]);
        }
    }
};

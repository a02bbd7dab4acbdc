// The gradient of a convolution's weights, of activations and of the gradient of its output that lie
// in shared memory: a part of layer.cu.
//
// For each tap it is the sum over pixels q of activations(q) * gradient(q - tap), where q goes over
// the group's own lines: what lies around an image is zero. Pixels are the inner dimension of the
// products, sixteen at a time, so both are read transposed. The activations are made here, of what
// the norm before the convolution read. Warps of their own do it, beside those that convolve.

// A row of a group's sums, of one output channel, is such that four rows lie in different banks.
constexpr int PADDING = 8;

// Of lines of sixteen pixels and more: a warp takes sixteen channels on either side, and of a strip
// as many tiles as lets it multiply as much as one that convolves.
constexpr int PARTS = STRIPS * (BANDS > DEPTH ? BANDS / DEPTH : 1);
constexpr int ROW = 9 * CHANNELS + PADDING;
constexpr int SUMS = PARTS * CHANNELS * ROW / 4;  // chunks; at last they lie over all activations

// Of lines of eight pixels: a warp takes sixteen channels before. It sums three taps at a time.
constexpr int NARROW_ROW = 3 * 16 + PADDING;
constexpr int NARROW_SUMS = 16 * NARROW_ROW / 4;  // chunks of a warp

constexpr int WEIGHERS = NARROW ? DEPTH : PARTS * DEPTH * DEPTH;
constexpr int OWN_ROOM =
    !NARROW && SUMS > PLANES * (PIXELS + OWN) ? SUMS - PLANES * PIXELS : PLANES * OWN;
constexpr int MORE = NARROW ? WEIGHERS * NARROW_SUMS : 9 * DEPTH * DEPTH * 32;

// What both have in common: a lane's place in what ldmatrix reads, and its two channels before.
// Of the four matrices: the first and the second plane, of the first and the second eight pixels.
struct Weigher {
    int plane, half, pixel;
    float factors[2], offsets[2];

    __device__ Weigher() : plane(LANE / 8 % 2), half(LANE / 16), pixel(LANE % 8) {}

    __device__ __forceinline__ void read(const float (*constants)[CHANNELS], int before) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            const int channel = 16 * before + 8 * side + static_cast<int>(LANE / 4);
            factors[side] = constants[0][channel], offsets[side] = constants[1][channel];
        }
    }

    __device__ __forceinline__ void load(uint32_t (&active)[4], const Chunk* raw) const {
        load_transposed(active, raw);
#pragma unroll
        for (int each = 0; each < 4; ++each) {
            float low, high;
            unpack(active[each], low, high);
            active[each] = pack(activate(low, factors[each % 2], offsets[each % 2]),
                                activate(high, factors[each % 2], offsets[each % 2]));
        }
    }

    // For sixteen channels after and before: the sums of eight before are one product.
    static __device__ __forceinline__ void add(float (&sums)[2][4], const uint32_t (&gradient)[4],
                                               const uint32_t (&active)[4]) {
        multiply(sums[0], gradient, active[0], active[2]);
        multiply(sums[1], gradient, active[1], active[3]);
    }

    // Put a tap's sums into the rows of their output channels.
    static __device__ __forceinline__ void put(float* place, int row, const float (&sums)[2][4]) {
        place += static_cast<int>(LANE / 4) * row + 2 * static_cast<int>(LANE % 4);
#pragma unroll
        for (int each = 0; each < 4; ++each) {
            const int side = each / 2, low = each % 2;
            *reinterpret_cast<float2*>(place + 8 * low * row + 8 * side) =
                float2{sums[side][2 * low], sums[side][2 * low + 1]};
        }
    }
};

struct WideWeigher : Weigher {
    int part, after, before;
    float sums[9][2][4];

    __device__ explicit WideWeigher(unsigned warp)
        : part(PARTS == 1 ? 0 : warp / (DEPTH * DEPTH)),
          after(warp / DEPTH % DEPTH),
          before(warp % DEPTH) {}

    __device__ __forceinline__ void run(const Chunk* planes, const Chunk* own,
                                        const float (*constants)[CHANNELS]) {
#pragma unroll
        for (int each = 0; each < 72; ++each) sums[each / 8][each / 4 % 2][each % 4] = 0.f;
        read(constants, before);
        constexpr int TURNS = TILES / PARTS;
        const int line = part / STRIPS * TURNS * LINES, column = part % STRIPS * 16 + 8 * half + pixel;
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
                load_transposed(gradient, gradients + line * PITCH + 1 - across);
#pragma unroll
                for (int down = 0; down < 3; ++down) {
                    const int with = line + down - 1;
                    if (with < 0 || with >= LINES) continue;
                    add(sums[3 * down + across], gradient, active[with % 3]);
                }
            }
        }
    }

    __device__ __forceinline__ void keep(float* parts) const {
        parts += (part * CHANNELS + 16 * after) * ROW + 16 * before;
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) put(parts + tap * CHANNELS, ROW, sums[tap]);
    }
};

// Add what all warps kept to the gradient of the batch: after x 3 x 3 x before.
template <int THREADS>
__device__ __forceinline__ void add_weights(const float* parts, float* out) {
    constexpr int ALL = 9 * CHANNELS * CHANNELS, TURNS = (ALL + THREADS - 1) / THREADS;
#pragma unroll 3
    for (int turn = 0; turn < TURNS; ++turn) {
        // Groups begin at different places: else all would wait for the same ones.
        const int from = (turn + static_cast<int>(blockIdx.x)) % TURNS * THREADS;
        const int each = from + static_cast<int>(threadIdx.x);
        if (each >= ALL) continue;
        const float* const place = parts + each + each / (9 * CHANNELS) * PADDING;
        float value = 0.f;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) value += place[part * CHANNELS * ROW];
        atomicAdd(out + each, value);
    }
}

// Sixteen pixels are a line and the one four below, such that what is read of gradients for a tap
// also serves the taps above and below it.
struct NarrowWeigher : Weigher {
    static constexpr int APART = LINES / 2;
    int before;

    __device__ explicit NarrowWeigher(int warp) : before(warp) {}

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
        for (int turn = 0; turn < 3 * DEPTH; ++turn) {
            // Groups begin at different places: else all would wait for the same ones.
            const int after = (turn + static_cast<int>(blockIdx.x)) % DEPTH, across = turn / DEPTH;
            float sums[3][2][4] = {};
            column(sums, planes + 2 * after * PIXELS + 1 - across, active);
#pragma unroll
            for (int down = 0; down < 3; ++down) put(mine + 16 * down, NARROW_ROW, sums[down]);
            __syncwarp();
            give(mine, out + (16 * after * 9 + across) * CHANNELS + 16 * before);
            __syncwarp();
        }
    }

    // The three taps of a column.
    __device__ __forceinline__ void column(float (&sums)[3][2][4], const Chunk* gradients,
                                           const uint32_t (&active)[APART][4]) const {
#pragma unroll
        for (int line = -1; line <= APART; ++line) {
            uint32_t gradient[4];
            load_transposed(gradient, gradients + line * PITCH);
#pragma unroll
            for (int down = 0; down < 3; ++down) {
                const int with = line + down - 1;
                if (with < 0 || with >= APART) continue;
                add(sums[down], gradient, active[with]);
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

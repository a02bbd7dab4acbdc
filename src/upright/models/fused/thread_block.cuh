// What a thread block has of an image, and how that comes into shared memory: part of
// training_layer.cu.

struct Shared {
    Chunk planes[PLANES * PIXELS];
    Chunk own[OWN_ROOM];     // the thread block's own lines of other activations
    Chunk scratch[SCRATCH];  // the weights; of a narrow image, what WEIGHT_WARPS need
    float constants[CONSTANTS][CHANNELS];
    float partial[WARPS][2][16];
};

// From the sums of a norm's input and of its square, two rows, `total` apart; a pixel's share of
// the batch makes them means.
struct Norm {
    float mean, inverse;
    __device__ Norm(const float* sums, int total, int channel, float share) {
        const float sum = sums[channel], squares = sums[total + channel];
        mean = sum * share;
        inverse = rsqrtf(fmaxf(squares * share - mean * mean, 0.f) + EPSILON);
    }
};

// Where a thread block, and a warp of it, works.
struct WarpTile {
    int image, line0, slice, column, band;
    __device__ WarpTile()
        : image(blockIdx.x / (HEIGHT / BLOCK_LINES)),
          line0(blockIdx.x % (HEIGHT / BLOCK_LINES) * BLOCK_LINES),
          slice(WARP % SLICES),
          column(WARP / SLICES % STRIPS * 16),
          band(WARP / (SLICES * STRIPS) * LINES) {}

    // The chunk of which `convolve` gives the thread a pair: in an image, and in the
    // thread block's lines.
    __device__ int chunk(int line, int n8, int right) const {
        const int pixel = (line0 + band + line) * WIDTH + x(right);
        return image * SIZE + pixel * PLANES + 2 * slice + n8;
    }
    __device__ int own(int line, int n8, int right) const {
        return (2 * slice + n8) * OWN + (band + line) * WIDTH + x(right);
    }

   private:
    __device__ int x(int right) const { return column + static_cast<int>(LANE / 4) + 8 * right; }
};

// Start to copy what a kernel needs after `fill` into shared memory: the weights, if they have
// room, and the thread block's own lines of some activations, if any.
template <int THREADS>
__device__ __forceinline__ void copy(Shared& shared, const uint4* weights, const Chunk* own,
                                     const WarpTile& warp) {
    if (!NARROW)
        for (int each = threadIdx.x; each < SCRATCH; each += THREADS)
            cp_async(shared.scratch + each, weights + each);
    if (own != nullptr) {
        own += warp.image * SIZE + warp.line0 * WIDTH * PLANES;
        for (int each = threadIdx.x; each < BLOCK_LINES * WIDTH * PLANES; each += THREADS)
            cp_async(shared.own + each % PLANES * OWN + each / PLANES, own + each);
    }
    cp_async_commit();
}

// A warp's weights.
__device__ __forceinline__ const uint4* weights_of(const Shared& shared, const uint4* weights,
                                                   const WarpTile& warp) {
    if (!NARROW) weights = reinterpret_cast<const uint4*>(shared.scratch);
    return weights + warp.slice * 9 * SLICES * 32;
}

// The chunks that a thread of `THREADS` takes of the thread block's lines and of the two around
// them, one in each turn. Outside the image, that of the nearest pixel inside.
template <int THREADS>
struct Turn {
    static constexpr int ALL = (BLOCK_LINES + 2) * WIDTH * PLANES;
    static constexpr int COUNT = (ALL + THREADS - 1) / THREADS;
    int plane, column, line, y, near;

    __device__ explicit Turn(const WarpTile& warp, int turn) {
        const int each = min(turn * THREADS + static_cast<int>(threadIdx.x), ALL - 1);
        plane = each % PLANES, column = each / PLANES % WIDTH;
        line = each / (PLANES * WIDTH) - 1, y = warp.line0 + line;
        near = max(0, min(y, HEIGHT - 1));
    }
    __device__ int chunk(const WarpTile& warp) const {
        return warp.image * SIZE + (near * WIDTH + column) * PLANES + plane;
    }
    // Of a shortcut's output, which is averaged over two by two pixels and has as many channels
    // more.
    __device__ int halved(const WarpTile& warp) const {
        const int line = warp.image * (HEIGHT / 2) + near / 2;
        return (line * (WIDTH / 2) + column / 2) * 2 * PLANES + PLANES / 2 + plane;
    }
};

// Put the chunk that a function gives for each turn into shared memory; that of the thread block's
// own lines also where `kept` says, if anywhere. After it, all copies are there.
template <int THREADS, class Make>
__device__ __forceinline__ void fill(Shared& shared, Chunk* kept, const WarpTile& warp, Make make) {
    constexpr Chunk NOTHING{{0, 0, 0, 0}};
    for (int each = threadIdx.x; each < (BLOCK_LINES + 3) * PLANES; each += THREADS)
        shared.planes[each % PLANES * PIXELS + each / PLANES * PITCH] = NOTHING;
#pragma unroll
    for (int turn = 0; turn < Turn<THREADS>::COUNT; ++turn) {
        const Turn<THREADS> at(warp, turn);
        const Chunk chunk = make(turn, at.plane);
        shared.planes[at.plane * PIXELS + place_of(at.line, at.column)] =
            at.near == at.y ? chunk : NOTHING;
        if (kept != nullptr && at.line >= 0 && at.line < BLOCK_LINES) kept[at.chunk(warp)] = chunk;
    }
    cp_async_wait<0>();
    __syncthreads();
}

// Keep a warp's sums of two channels in each of two n8.
__device__ __forceinline__ void keep_sums(Shared& shared, const float (&mine)[2][2][2]) {
    for (int row = 0; row < 2; ++row)
        for (int n8 = 0; n8 < 2; ++n8)
            for (int odd = 0; odd < 2; ++odd) {
                float value = mine[row][n8][odd];
                for (int bit = 4; bit < 32; bit *= 2) value += shuffle_xor(value, bit);
                if (LANE < 4) shared.partial[WARP][row][8 * n8 + 2 * LANE + odd] = value;
            }
}

// Add what all warps kept to the sums of the batch.
__device__ __forceinline__ void add_sums(const Shared& shared, float* sums, int total) {
    static_assert(THREADS_FORWARD >= 2 * CHANNELS, "each sum needs a thread");
    if (threadIdx.x < 2 * CHANNELS) {
        const int row = threadIdx.x / CHANNELS, channel = threadIdx.x % CHANNELS;
        float value = 0.f;
        for (int warp = channel / 16; warp < WARPS; warp += SLICES)
            value += shared.partial[warp][row][channel % 16];
        atomicAdd(sums + row * total + channel, value);
    }
}

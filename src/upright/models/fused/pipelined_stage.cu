// Residual blocks like those of stage.cu, where there are too many channels to hold a convolution's
// weights in registers, and images have eight lines of eight pixels.
//
// A thread block takes IMAGES images through all residual blocks, and their activations never leave
// shared memory. The weights of all convolutions come from L2, step by step, through a ring in
// shared memory (cp.async): while the warps compute with a step, the next are on their way. One
// buffer of activations suffices: what a convolution gives stays in registers until all warps have
// read what it takes.
//
// A warp computes all pixels of an image, for N8_TILES times 8 channels: that is its register tile.
// Eight pixels of a line are eight rows of an A fragment; so what it reads of an image for a tap
// serves the taps above and below, a line further. With SIGNS there is a backward kernel, too, as
// in stage.cu.

constexpr int PIXELS = HEIGHT * PITCH + 1;           // of a plane: no border above and below
constexpr int RESIDUAL_PIXELS = HEIGHT * WIDTH + 1;  // of a plane; one more: planes in other banks
constexpr int M_TILES = HEIGHT / 2;                  // m16 of an mma: two lines, M_TILES apart
constexpr int WARPS_PER_IMAGE = PLANES / N8_TILES;
constexpr int THREADS = 32 * IMAGES * WARPS_PER_IMAGE;
constexpr int INNER = 2;                               // k16 of a step for each tap
constexpr int STEPS = 3 * SLICES / INNER;              // of a convolution
constexpr int TAP = INNER * SLICES * 32;               // weights of a step for a tap, in chunks
constexpr int STEP = 3 * TAP;                          // weights of a step
constexpr int CONVOLUTION = 9 * SLICES * SLICES * 32;  // weights of a convolution, in chunks

using Accumulators = float[M_TILES][N8_TILES][4];

static_assert(WIDTH == 8, "eight pixels of a line are what ldmatrix reads at once");
static_assert(STEP % THREADS == 0 && THREADS / 32 % SLICES == 0, "warps share a step's weights");

// The part of a convolution for a column of taps and INNER times 16 channels before.
struct Step {
    int convolution, number, across, before;
    __device__ explicit Step(int step)
        : convolution(step / STEPS),
          number(step % STEPS),
          across(number * INNER / SLICES),
          before(number * INNER % SLICES) {}
};

// The weights of all convolutions, from the first that is taken to the last.
struct Weights {
    const uint4* first;
    int next;  // from one convolution to the next
    int steps;

    // Start to copy those of a step: one commit group for each, and an empty one where
    // none is left.
    __device__ void fetch(uint4* ring, int step) const {
        if (step < steps) {
            const Step now(step);
            uint4* const to = ring + step % SLOTS * STEP;
            const uint4* const from = first + now.convolution * next + LANE;
#pragma unroll
            for (int turn = 0; turn < STEP / THREADS; ++turn) {
                const int each = turn * THREADS + threadIdx.x, after = WARP % SLICES;
                const int row = turn * (THREADS / 32 / SLICES) + WARP / SLICES;
                const int before = now.before + row % INNER;
                const int tap = 3 * (row / INNER) + now.across;
                cp_async(to + each, from + ((after * 9 + tap) * SLICES + before) * 32);
            }
        }
        cp_async_commit();
    }
};

__device__ __forceinline__ void clear(Accumulators& accumulators) {
#pragma unroll
    for (int each = 0; each < M_TILES * N8_TILES * 4; ++each)
        accumulators[each / 4 / N8_TILES][each / 4 % N8_TILES][each % 4] = 0.f;
}

// Add what a column of taps gives for 16 channels before: `place` is where the lane reads the first
// tile, and `fragments` are its weights of the first tap.
__device__ __forceinline__ void add_column(Accumulators& accumulators, const Chunk* place,
                                           const uint4* fragments) {
    // Tiles with those above and below, which have a line that is another tile's, and one of zeros.
    uint32_t a[M_TILES + 2][4] = {};
#pragma unroll
    for (int tile = 0; tile < M_TILES; ++tile) ldmatrix(a[tile + 1], place + tile * PITCH);
    a[0][1] = a[M_TILES][0], a[0][3] = a[M_TILES][2];
    a[M_TILES + 1][0] = a[1][1], a[M_TILES + 1][2] = a[1][3];
#pragma unroll
    for (int down = 0; down < 3; ++down)
#pragma unroll
        for (int two = 0; two < N8_TILES / 2; ++two) {
            const uint4 b = fragments[down * TAP + two * 32];
#pragma unroll
            for (int tile = 0; tile < M_TILES; ++tile) {
                mma(accumulators[tile][2 * two], a[tile + down], b.x, b.y);
                mma(accumulators[tile][2 * two + 1], a[tile + down], b.z, b.w);
            }
        }
}

// Where a pixel is in a plane of activations.
__device__ __forceinline__ int spot_of(int pixel) {
    return place_of(pixel / WIDTH - 1, pixel % WIDTH);
}

// A thread block's shared memory, and where in it the warp works.
struct WarpTile {
    Chunk *active, *residual;  // planes of activations and of residuals
    uint4* ring;
    int image, slice, plane;  // which of N8_TILES times 8 channels, and the first of its planes

    __device__ explicit WarpTile(Chunk* memory)
        : active(memory),
          residual(active + IMAGES * PLANES * PIXELS),
          ring(reinterpret_cast<uint4*>(residual + IMAGES * PLANES * RESIDUAL_PIXELS)),
          image(WARP / WARPS_PER_IMAGE),
          slice(WARP % WARPS_PER_IMAGE),
          plane(image * PLANES + slice * N8_TILES) {}

    // Of a pair of channels that the thread has, of the line `y`: its number, and its place in a
    // norm's constants, in the activations and in the residuals.
    __device__ static int pair(int y, int n8) { return HEIGHT * n8 + y; }
    __device__ int channels(int n8) const {
        return (slice * N8_TILES + n8) * 4 + static_cast<int>(LANE % 4);
    }
    __device__ uint32_t& active_pair(int y, int n8) const {
        return (active + plane * PIXELS)[n8 * PIXELS + place_of(y - 1, LANE / 4)].pairs[LANE % 4];
    }
    __device__ uint32_t& residual_pair(int y, int n8) const {
        return (residual + plane * RESIDUAL_PIXELS)[n8 * RESIDUAL_PIXELS + y * WIDTH + LANE / 4]
            .pairs[LANE % 4];
    }
};

// What follows a convolution: with `closes`, it is added to the residuals that the residual block
// began with.
__device__ __forceinline__ void finish(const Accumulators& accumulators, bool closes,
                                       const float2* __restrict__ scale,
                                       const float2* __restrict__ shift, Signs* signs,
                                       const WarpTile& warp) {
    float2 factor[N8_TILES], offset[N8_TILES];
#pragma unroll
    for (int n8 = 0; n8 < N8_TILES; ++n8)
        factor[n8] = scale[warp.channels(n8)], offset[n8] = shift[warp.channels(n8)];
    __syncthreads();  // all have read the activations that these take the place of
    Signs mine{};
#pragma unroll
    for (int n8 = 0; n8 < N8_TILES; ++n8) {
        uint32_t before[HEIGHT];  // all at once: one by one, each would wait for a store
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) before[y] = closes ? warp.residual_pair(y, n8) : 0;
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) {
            const float(&four)[4] = accumulators[y % M_TILES][n8];
            float low = four[y / M_TILES * 2], high = four[y / M_TILES * 2 + 1];
            if (closes) {
                add(before[y], low, high);
                warp.residual_pair(y, n8) = pack(low, high);
            }
            const uint32_t active = pack(activate(low, factor[n8].x, offset[n8].x),
                                         activate(high, factor[n8].y, offset[n8].y));
            warp.active_pair(y, n8) = active;
            if (SIGNS) mine.keep(warp.pair(y, n8), active);
        }
    }
    if (SIGNS) *signs = mine;
}

// The same in the backward kernel: the gradient of what a convolution read is taken on through the
// activation and the norm before it; with `closes`, to that of the residuals that the residual
// block began with.
__device__ __forceinline__ void finish_backward(const Accumulators& accumulators, bool closes,
                                                bool active_shortcut,
                                                const float2* __restrict__ scale,
                                                const Signs* __restrict__ signs,
                                                const WarpTile& warp) {
    const Signs mine = *signs;
    float2 factor[N8_TILES];
#pragma unroll
    for (int n8 = 0; n8 < N8_TILES; ++n8) factor[n8] = scale[warp.channels(n8)];
    __syncthreads();  // all have read the gradients that these take the place of
#pragma unroll
    for (int n8 = 0; n8 < N8_TILES; ++n8) {
        uint32_t before[HEIGHT];
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) before[y] = closes ? warp.residual_pair(y, n8) : 0;
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) {
            const float(&four)[4] = accumulators[y % M_TILES][n8];
            float low = four[y / M_TILES * 2], high = four[y / M_TILES * 2 + 1];
            if (closes && active_shortcut) add(before[y], low, high);
            mine.backward(warp.pair(y, n8), low, high);
            low *= factor[n8].x, high *= factor[n8].y;
            if (closes && !active_shortcut) add(before[y], low, high);
            const uint32_t both = pack(low, high);
            warp.active_pair(y, n8) = both;
            if (closes) warp.residual_pair(y, n8) = both;
        }
    }
}

// Go over the chunks of the thread block's images: `visit(chunk, spot, place)`, where each is in
// global memory, and in shared memory in the planes of activations and of residuals.
template <class Visit>
__device__ __forceinline__ void each_chunk(int images, Visit visit) {
    constexpr int SIZE = HEIGHT * WIDTH * PLANES;
    const int first = blockIdx.x * IMAGES, present = min(IMAGES, images - first);
    for (int each = threadIdx.x; each < present * SIZE; each += THREADS) {
        const int plane = each / SIZE * PLANES + each % PLANES, pixel = each % SIZE / PLANES;
        visit(first * SIZE + each, plane * PIXELS + spot_of(pixel),
              plane * RESIDUAL_PIXELS + pixel);
    }
}

// Start to copy the first weights, and fill the planes of activations with zeros.
__device__ __forceinline__ void begin(const WarpTile& warp, const Weights& weights) {
    for (int step = 0; step < SLOTS - 1; ++step) weights.fetch(warp.ring, step);
    for (int each = threadIdx.x; each < IMAGES * PLANES * PIXELS; each += THREADS)
        warp.active[each] = Chunk{{0, 0, 0, 0}};
    __syncthreads();
}

// Take what is in the planes of activations through all convolutions. `finish(accumulators,
// convolution)` puts what one gives into the place of what it read, when all warps are done with
// that.
template <class Finish>
__device__ __forceinline__ void convolve_all(const WarpTile& warp, const Weights& weights,
                                             Finish finish) {
    // Of the four matrices: the two lines of a tile, of the first and the second plane.
    const int line = LANE / 8 % 2 * M_TILES, plane = LANE / 16;
    const Chunk* const place =
        warp.active + (warp.image * PLANES + plane) * PIXELS + spot_of(line * WIDTH + LANE % 8);
    Accumulators accumulators;
    for (int step = 0; step < weights.steps; ++step) {
        cp_async_wait<SLOTS - 2>();
        __syncthreads();  // all have this step's weights, and are done with those of the one before
        weights.fetch(warp.ring, step + SLOTS - 1);
        const Step now(step);
        if (now.number == 0) clear(accumulators);
#pragma unroll
        for (int inner = 0; inner < INNER; ++inner)
            add_column(accumulators, place + (now.before + inner) * 2 * PIXELS + now.across - 1,
                       warp.ring + step % SLOTS * STEP +
                           (inner * SLICES + warp.slice * N8_TILES / 2) * 32 + LANE);
        if (now.number == STEPS - 1) finish(accumulators, now.convolution);
    }
    __syncthreads();
}

// Images, N x H x W x C: the activations and the residuals that enter, and those that leave.
// Weights of each convolution as B fragments; scales and shifts of the norm that follows it. With
// SIGNS, those of what enters and of what each convolution gives.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    pipelined_stage(const Chunk* __restrict__ active, const Chunk* __restrict__ raw,
                    Chunk* active_out, Chunk* raw_out, const uint4* __restrict__ weights,
                    const float2* __restrict__ scale, const float2* __restrict__ shift,
                    Signs* signs, int images, int residual_blocks) {
    extern __shared__ Chunk memory[];
    const WarpTile warp(memory);
    const Weights all{weights, CONVOLUTION, 2 * residual_blocks * STEPS};
    begin(warp, all);
    each_chunk(images, [&](int chunk, int spot, int place) {
        warp.active[spot] = active[chunk];
        warp.residual[place] = raw[chunk];
    });
    signs += blockIdx.x * THREADS + threadIdx.x;
    const int all_signs = (images + IMAGES - 1) / IMAGES * THREADS;
    if (SIGNS) {
        __syncthreads();
        Signs mine{};
#pragma unroll
        for (int pair = 0; pair < HEIGHT * N8_TILES; ++pair)
            mine.keep(pair, warp.active_pair(pair % HEIGHT, pair / HEIGHT));
        *signs = mine;
    }
    convolve_all(warp, all, [&](const Accumulators& accumulators, int convolution) {
        const int norm = convolution * (CHANNELS / 2);
        finish(accumulators, convolution % 2 == 1, scale + norm, shift + norm,
               signs + (convolution + 1) * all_signs, warp);
    });
    each_chunk(images, [&](int chunk, int spot, int place) {
        active_out[chunk] = warp.active[spot];
        raw_out[chunk] = warp.residual[place];
    });
}

#if SIGNS
// The gradient of the residuals that leave, and that of those that enter; see stage.cu.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    pipelined_stage_backward(const Chunk* __restrict__ gradient, Chunk* gradient_out,
                             const uint4* __restrict__ weights, const float2* __restrict__ scale,
                             const Signs* __restrict__ signs, int active_shortcut, int images,
                             int residual_blocks) {
    extern __shared__ Chunk memory[];
    const WarpTile warp(memory);
    const int last = 2 * residual_blocks - 1;
    const Weights all{weights + last * CONVOLUTION, -CONVOLUTION, 2 * residual_blocks * STEPS};
    begin(warp, all);
    each_chunk(images, [&](int chunk, int spot, int place) {
        warp.active[spot] = warp.residual[place] = gradient[chunk];
    });
    signs += blockIdx.x * THREADS + threadIdx.x;
    const int all_signs = (images + IMAGES - 1) / IMAGES * THREADS;
    convolve_all(warp, all, [&](const Accumulators& accumulators, int convolution) {
        const int number = last - convolution;
        finish_backward(accumulators, number % 2 == 0, active_shortcut && number == 0,
                        scale + number * (CHANNELS / 2), signs + number * all_signs, warp);
    });
    each_chunk(images,
               [&](int chunk, int, int place) { gradient_out[chunk] = warp.residual[place]; });
}
#endif

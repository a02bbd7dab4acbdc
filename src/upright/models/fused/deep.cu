// Residual blocks like those of stage.cu, where there are too many channels to hold a convolution's
// weights in registers, and images have eight lines of eight pixels.
//
// A group of threads takes IMAGES images through all blocks, and their activations never leave
// shared memory. The weights of all convolutions come from the second-level cache, step by step,
// through a ring in shared memory: while the warps compute with a step, the next are on their way.
// One buffer of activations suffices: what a convolution gives stays in registers until all have
// read what it takes.
//
// A warp computes all pixels of an image, for 32 channels. Eight pixels of a line are eight rows of
// a matrix; so what it reads of an image for a tap serves the taps above and below, a line further.

constexpr int PIXELS = HEIGHT * PITCH + 1;  // of a plane: no border above and below
constexpr int KEPT = HEIGHT * WIDTH + 1;    // of a plane of sums; one more: planes in other banks
constexpr int TILES = HEIGHT / 2;           // of two lines each, which are TILES apart
constexpr int SIDES = 4;                    // planes of a warp's channels
constexpr int HALVES = PLANES / SIDES;      // warps of an image
constexpr int THREADS = 32 * IMAGES * HALVES;
constexpr int INNER = 2;                             // products of a step for each tap
constexpr int STEPS = 3 * DEPTH / INNER;             // of a convolution
constexpr int STEP = 3 * INNER * DEPTH * 32;         // weights of a step, in chunks
constexpr int CONVOLUTION = 9 * DEPTH * DEPTH * 32;  // weights of a convolution, in chunks

static_assert(WIDTH == 8, "eight pixels of a line are what ldmatrix reads at once");
static_assert(THREADS == 32 * INNER * DEPTH, "a thread copies one chunk for each tap of a step");

__device__ __forceinline__ float activate(float value, float scale, float shift) {
    const float normed = value * scale + shift;
    return fmaxf(normed, normed * SLOPE);
}

// The part of a convolution for a column of taps and INNER times 16 channels before.
struct Step {
    int convolution, number, across, before;
    __device__ explicit Step(int step)
        : convolution(step / STEPS),
          number(step % STEPS),
          across(number * INNER / DEPTH),
          before(number * INNER % DEPTH) {}
};

// Start to copy the weights of a step: one lot for each, and an empty one where none is left.
__device__ __forceinline__ void fetch(uint4* ring, const uint4* weights, int step, int steps) {
    if (step < steps) {
        const Step part(step);
        const int after = WARP % DEPTH, before = part.before + static_cast<int>(WARP / DEPTH);
        uint4* const to = ring + step % SLOTS * STEP + threadIdx.x;
        weights += part.convolution * CONVOLUTION + LANE;
#pragma unroll
        for (int down = 0; down < 3; ++down) {
            const int tap = 3 * down + part.across;
            copy_later(to + down * THREADS, weights + ((after * 9 + tap) * DEPTH + before) * 32);
        }
    }
    end_lot();
}

__device__ __forceinline__ void clear(float (&sums)[TILES][SIDES][4]) {
#pragma unroll
    for (int each = 0; each < TILES * SIDES * 4; ++each)
        sums[each / 4 / SIDES][each / 4 % SIDES][each % 4] = 0.f;
}

// Add what a column of taps gives for 16 channels before: `place` is where the lane reads the first
// tile, and `kernel` are its weights of the first tap.
__device__ __forceinline__ void add_column(float (&sums)[TILES][SIDES][4], const Chunk* place,
                                           const uint4* kernel) {
    // Tiles with those above and below, which have a line that is another tile's, and one of zeros.
    uint32_t tiles[TILES + 2][4] = {};
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) load_matrices(tiles[tile + 1], place + tile * PITCH);
    tiles[0][1] = tiles[TILES][0], tiles[0][3] = tiles[TILES][2];
    tiles[TILES + 1][0] = tiles[1][1], tiles[TILES + 1][2] = tiles[1][3];
#pragma unroll
    for (int down = 0; down < 3; ++down)
#pragma unroll
        for (int part = 0; part < SIDES / 2; ++part) {
            const uint4 b = kernel[down * THREADS + part * 32];
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                multiply(sums[tile][2 * part], tiles[tile + down], b.x, b.y);
                multiply(sums[tile][2 * part + 1], tiles[tile + down], b.z, b.w);
            }
        }
}

// What follows a convolution: with `closes`, its sums are added to those that the block began with.
// `target` and `kept` are the plane 0 of the warp's channels.
__device__ __forceinline__ void finish(const float (&sums)[TILES][SIDES][4], bool closes,
                                       Chunk* target, Chunk* kept, const float2 (&scale)[SIDES],
                                       const float2 (&shift)[SIDES]) {
    const int x = LANE / 4, pair = LANE % 4;
#pragma unroll
    for (int side = 0; side < SIDES; ++side) {
        uint32_t before[HEIGHT];  // all at once: one by one, each would wait for a store
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y)
            before[y] = closes ? kept[side * KEPT + y * WIDTH + x].pairs[pair] : 0;
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) {
            const float(&four)[4] = sums[y % TILES][side];
            float low = four[y / TILES * 2], high = four[y / TILES * 2 + 1];
            if (closes) {
                add(before[y], low, high);
                kept[side * KEPT + y * WIDTH + x].pairs[pair] = pack(low, high);
            }
            target[side * PIXELS + place_of(y - 1, x)].pairs[pair] =
                pack(activate(low, scale[side].x, shift[side].x),
                     activate(high, scale[side].y, shift[side].y));
        }
    }
}

// Go over the chunks of images in global memory: `visit(chunk, plane, pixel)`; the planes of an
// image are counted on from those of the one before.
template <class Visit>
__device__ __forceinline__ void each_chunk(int images, Visit visit) {
    constexpr int SIZE = HEIGHT * WIDTH * PLANES;
    for (int each = threadIdx.x; each < images * SIZE; each += THREADS)
        visit(each, each / SIZE * PLANES + each % PLANES, each % SIZE / PLANES);
}

// Where a pixel is in a plane of activations.
__device__ __forceinline__ int spot_of(int pixel) {
    return place_of(pixel / WIDTH - 1, pixel % WIDTH);
}

// Images, N x H x W x C: the activations and the sums that enter, and those that leave. Weights of
// each convolution as warps hold them; scales and shifts of the norm that follows it.
extern "C" __global__ void __launch_bounds__(THREADS, GROUPS)
    deep(const Chunk* __restrict__ active, const Chunk* __restrict__ raw, Chunk* active_out,
         Chunk* raw_out, const uint4* __restrict__ weights, const float2* __restrict__ scale,
         const float2* __restrict__ shift, int images, int blocks) {
    extern __shared__ Chunk memory[];
    Chunk* const kept = memory + IMAGES * PLANES * PIXELS;
    uint4* const ring = reinterpret_cast<uint4*>(kept + IMAGES * PLANES * KEPT);
    const int before = blockIdx.x * IMAGES, first = before * HEIGHT * WIDTH * PLANES;
    const int present = min(IMAGES, images - before), steps = 2 * blocks * STEPS;

    for (int step = 0; step < SLOTS - 1; ++step) fetch(ring, weights, step, steps);
    for (int each = threadIdx.x; each < IMAGES * PLANES * PIXELS; each += THREADS)
        memory[each] = Chunk{{0, 0, 0, 0}};
    __syncthreads();
    each_chunk(present, [&](int chunk, int plane, int pixel) {
        memory[plane * PIXELS + spot_of(pixel)] = active[first + chunk];
        kept[plane * KEPT + pixel] = raw[first + chunk];
    });

    const int image = WARP / HALVES, half = WARP % HALVES, plane0 = image * PLANES + half * SIDES;
    // Of the four matrices: the two lines of a tile, of the first and the second plane.
    const int line = LANE / 8 % 2 * TILES, side = LANE / 16;
    const Chunk* const place =
        memory + (image * PLANES + side) * PIXELS + spot_of(line * WIDTH + LANE % 8);
    float sums[TILES][SIDES][4];
    for (int step = 0; step < steps; ++step) {
        await_lots<SLOTS - 2>();
        __syncthreads();  // all have this step's weights, and are done with those of the one before
        fetch(ring, weights, step + SLOTS - 1, steps);
        const Step part(step);
        if (part.number == 0) clear(sums);
#pragma unroll
        for (int inner = 0; inner < INNER; ++inner)
            add_column(sums, place + (part.before + inner) * 2 * PIXELS + part.across - 1,
                       ring + step % SLOTS * STEP + (inner * DEPTH + half * SIDES / 2) * 32 + LANE);
        if (part.number < STEPS - 1) continue;

        const int norm = (part.convolution * PLANES + half * SIDES) * 4 + LANE % 4;
        float2 factor[SIDES], offset[SIDES];
#pragma unroll
        for (int side = 0; side < SIDES; ++side)
            factor[side] = scale[norm + 4 * side], offset[side] = shift[norm + 4 * side];
        __syncthreads();  // all have read the activations that these take the place of
        finish(sums, part.convolution % 2 == 1, memory + plane0 * PIXELS, kept + plane0 * KEPT,
               factor, offset);
    }
    __syncthreads();
    each_chunk(present, [&](int chunk, int plane, int pixel) {
        active_out[first + chunk] = memory[plane * PIXELS + spot_of(pixel)];
        raw_out[first + chunk] = kept[plane * KEPT + pixel];
    });
}

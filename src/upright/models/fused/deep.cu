// Residual blocks like those of stage.cu, where there are too many channels to hold a convolution's
// weights in registers, and images have eight lines of eight pixels.
//
// A group of threads takes IMAGES images through all blocks, and their activations never leave
// shared memory. The weights of all convolutions come from the second-level cache, step by step,
// through a ring in shared memory: while the warps compute with a step, the next are on their way.
// One buffer of activations suffices: what a convolution gives stays in registers until all have
// read what it takes.
//
// A warp computes all pixels of an image, for SIDES times 8 channels. Eight pixels of a line are
// eight rows of a matrix; so what it reads of an image for a tap serves the taps above and below, a
// line further. With SIGNS there is a way back, too, as in stage.cu.

constexpr int PIXELS = HEIGHT * PITCH + 1;  // of a plane: no border above and below
constexpr int KEPT = HEIGHT * WIDTH + 1;    // of a plane of sums; one more: planes in other banks
constexpr int TILES = HEIGHT / 2;           // of two lines each, which are TILES apart
constexpr int HALVES = PLANES / SIDES;      // warps of an image
constexpr int THREADS = 32 * IMAGES * HALVES;
constexpr int INNER = 2;                             // products of a step for each tap
constexpr int STEPS = 3 * DEPTH / INNER;             // of a convolution
constexpr int TAP = INNER * DEPTH * 32;              // weights of a step for a tap, in chunks
constexpr int STEP = 3 * TAP;                        // weights of a step
constexpr int CONVOLUTION = 9 * DEPTH * DEPTH * 32;  // weights of a convolution, in chunks

static_assert(WIDTH == 8, "eight pixels of a line are what ldmatrix reads at once");
static_assert(STEP % THREADS == 0 && THREADS / 32 % DEPTH == 0, "warps share a step's weights");

// The part of a convolution for a column of taps and INNER times 16 channels before.
struct Step {
    int convolution, number, across, before;
    __device__ explicit Step(int step)
        : convolution(step / STEPS),
          number(step % STEPS),
          across(number * INNER / DEPTH),
          before(number * INNER % DEPTH) {}
};

// The weights of all convolutions, from the first that is taken to the last.
struct Weights {
    const uint4* first;
    int next;  // from one convolution to the next
    int steps;

    // Start to copy those of a step: one lot for each, and an empty one where none is left.
    __device__ void fetch(uint4* ring, int step) const {
        if (step < steps) {
            const Step part(step);
            uint4* const to = ring + step % SLOTS * STEP;
            const uint4* const from = first + part.convolution * next + LANE;
#pragma unroll
            for (int turn = 0; turn < STEP / THREADS; ++turn) {
                const int each = turn * THREADS + threadIdx.x, after = WARP % DEPTH;
                const int row = turn * (THREADS / 32 / DEPTH) + WARP / DEPTH;
                const int before = part.before + row % INNER;
                const int tap = 3 * (row / INNER) + part.across;
                copy_later(to + each, from + ((after * 9 + tap) * DEPTH + before) * 32);
            }
        }
        end_lot();
    }
};

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
            const uint4 b = kernel[down * TAP + part * 32];
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                multiply(sums[tile][2 * part], tiles[tile + down], b.x, b.y);
                multiply(sums[tile][2 * part + 1], tiles[tile + down], b.z, b.w);
            }
        }
}

// Where a pixel is in a plane of activations.
__device__ __forceinline__ int spot_of(int pixel) {
    return place_of(pixel / WIDTH - 1, pixel % WIDTH);
}

// A group's shared memory, and which part of it is the warp's.
struct Part {
    Chunk *active, *kept;  // planes of activations and of sums
    uint4* ring;
    int image, half, plane;  // the first of its planes

    __device__ explicit Part(Chunk* memory)
        : active(memory),
          kept(active + IMAGES * PLANES * PIXELS),
          ring(reinterpret_cast<uint4*>(kept + IMAGES * PLANES * KEPT)),
          image(WARP / HALVES),
          half(WARP % HALVES),
          plane(image * PLANES + half * SIDES) {}

    // Of a pair of channels that the thread has, of the line `y`: its number, and its place in a
    // norm's constants, in the activations and in the sums.
    __device__ static int pair(int y, int side) { return HEIGHT * side + y; }
    __device__ int channels(int side) const {
        return (half * SIDES + side) * 4 + static_cast<int>(LANE % 4);
    }
    __device__ uint32_t& active_pair(int y, int side) const {
        return (active + plane * PIXELS)[side * PIXELS + place_of(y - 1, LANE / 4)].pairs[LANE % 4];
    }
    __device__ uint32_t& kept_pair(int y, int side) const {
        return (kept + plane * KEPT)[side * KEPT + y * WIDTH + LANE / 4].pairs[LANE % 4];
    }
};

// What follows a convolution: with `closes`, its sums are added to those that the block began with.
__device__ __forceinline__ void finish(const float (&sums)[TILES][SIDES][4], bool closes,
                                       const float2* __restrict__ scale,
                                       const float2* __restrict__ shift, Signs* signs,
                                       const Part& part) {
    float2 factor[SIDES], offset[SIDES];
#pragma unroll
    for (int side = 0; side < SIDES; ++side)
        factor[side] = scale[part.channels(side)], offset[side] = shift[part.channels(side)];
    __syncthreads();  // all have read the activations that these take the place of
    Signs mine{};
#pragma unroll
    for (int side = 0; side < SIDES; ++side) {
        uint32_t before[HEIGHT];  // all at once: one by one, each would wait for a store
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) before[y] = closes ? part.kept_pair(y, side) : 0;
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) {
            const float(&four)[4] = sums[y % TILES][side];
            float low = four[y / TILES * 2], high = four[y / TILES * 2 + 1];
            if (closes) {
                add(before[y], low, high);
                part.kept_pair(y, side) = pack(low, high);
            }
            const uint32_t active = pack(activate(low, factor[side].x, offset[side].x),
                                         activate(high, factor[side].y, offset[side].y));
            part.active_pair(y, side) = active;
            if (SIGNS) mine.keep(part.pair(y, side), active);
        }
    }
    if (SIGNS) *signs = mine;
}

// The same on the way back: the gradient of what a convolution read is taken on through the activation
// and the norm before it; with `closes`, to the sums that the block began with, of which `kept` has the
// gradient.
__device__ __forceinline__ void finish_back(const float (&sums)[TILES][SIDES][4], bool closes,
                                            bool active_shortcut, const float2* __restrict__ scale,
                                            const Signs* __restrict__ signs, const Part& part) {
    const Signs mine = *signs;
    float2 factor[SIDES];
#pragma unroll
    for (int side = 0; side < SIDES; ++side) factor[side] = scale[part.channels(side)];
    __syncthreads();  // all have read the gradients that these take the place of
#pragma unroll
    for (int side = 0; side < SIDES; ++side) {
        uint32_t before[HEIGHT];
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) before[y] = closes ? part.kept_pair(y, side) : 0;
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) {
            const float(&four)[4] = sums[y % TILES][side];
            float low = four[y / TILES * 2], high = four[y / TILES * 2 + 1];
            if (closes && active_shortcut) add(before[y], low, high);
            mine.go_back(part.pair(y, side), low, high);
            low *= factor[side].x, high *= factor[side].y;
            if (closes && !active_shortcut) add(before[y], low, high);
            const uint32_t both = pack(low, high);
            part.active_pair(y, side) = both;
            if (closes) part.kept_pair(y, side) = both;
        }
    }
}

// Go over the chunks of the group's images: `visit(chunk, spot, place)`, where each is in global
// memory, and in shared memory in the planes of activations and of sums.
template <class Visit>
__device__ __forceinline__ void each_chunk(int images, Visit visit) {
    constexpr int SIZE = HEIGHT * WIDTH * PLANES;
    const int first = blockIdx.x * IMAGES, present = min(IMAGES, images - first);
    for (int each = threadIdx.x; each < present * SIZE; each += THREADS) {
        const int plane = each / SIZE * PLANES + each % PLANES, pixel = each % SIZE / PLANES;
        visit(first * SIZE + each, plane * PIXELS + spot_of(pixel), plane * KEPT + pixel);
    }
}

// Start to copy the first weights, and fill the planes of activations with zeros.
__device__ __forceinline__ void begin(const Part& part, const Weights& weights) {
    for (int step = 0; step < SLOTS - 1; ++step) weights.fetch(part.ring, step);
    for (int each = threadIdx.x; each < IMAGES * PLANES * PIXELS; each += THREADS)
        part.active[each] = Chunk{{0, 0, 0, 0}};
    __syncthreads();
}

// Take what is in the planes of activations through all convolutions. `finish(sums, convolution)` puts
// what one gives into the place of what it read, when all warps are done with that.
template <class Finish>
__device__ __forceinline__ void convolve_all(const Part& part, const Weights& weights,
                                             Finish finish) {
    // Of the four matrices: the two lines of a tile, of the first and the second plane.
    const int line = LANE / 8 % 2 * TILES, side = LANE / 16;
    const Chunk* const place =
        part.active + (part.image * PLANES + side) * PIXELS + spot_of(line * WIDTH + LANE % 8);
    float sums[TILES][SIDES][4];
    for (int step = 0; step < weights.steps; ++step) {
        await_lots<SLOTS - 2>();
        __syncthreads();  // all have this step's weights, and are done with those of the one before
        weights.fetch(part.ring, step + SLOTS - 1);
        const Step now(step);
        if (now.number == 0) clear(sums);
#pragma unroll
        for (int inner = 0; inner < INNER; ++inner)
            add_column(sums, place + (now.before + inner) * 2 * PIXELS + now.across - 1,
                       part.ring + step % SLOTS * STEP +
                           (inner * DEPTH + part.half * SIDES / 2) * 32 + LANE);
        if (now.number == STEPS - 1) finish(sums, now.convolution);
    }
    __syncthreads();
}

// Images, N x H x W x C: the activations and the sums that enter, and those that leave. Weights of
// each convolution as warps hold them; scales and shifts of the norm that follows it. With SIGNS,
// those of what enters and of what each convolution gives.
extern "C" __global__ void __launch_bounds__(THREADS, GROUPS)
    deep(const Chunk* __restrict__ active, const Chunk* __restrict__ raw, Chunk* active_out,
         Chunk* raw_out, const uint4* __restrict__ weights, const float2* __restrict__ scale,
         const float2* __restrict__ shift, Signs* signs, int images, int blocks) {
    extern __shared__ Chunk memory[];
    const Part part(memory);
    const Weights all{weights, CONVOLUTION, 2 * blocks * STEPS};
    begin(part, all);
    each_chunk(images, [&](int chunk, int spot, int place) {
        part.active[spot] = active[chunk];
        part.kept[place] = raw[chunk];
    });
    signs += blockIdx.x * THREADS + threadIdx.x;
    const int all_signs = (images + IMAGES - 1) / IMAGES * THREADS;
    if (SIGNS) {
        __syncthreads();
        Signs mine{};
#pragma unroll
        for (int pair = 0; pair < HEIGHT * SIDES; ++pair)
            mine.keep(pair, part.active_pair(pair % HEIGHT, pair / HEIGHT));
        *signs = mine;
    }
    convolve_all(part, all, [&](const float (&sums)[TILES][SIDES][4], int convolution) {
        const int norm = convolution * (CHANNELS / 2);
        finish(sums, convolution % 2 == 1, scale + norm, shift + norm,
               signs + (convolution + 1) * all_signs, part);
    });
    each_chunk(images, [&](int chunk, int spot, int place) {
        active_out[chunk] = part.active[spot];
        raw_out[chunk] = part.kept[place];
    });
}

#if SIGNS
// The gradient of the sums that leave, and that of those that enter; see stage.cu.
extern "C" __global__ void __launch_bounds__(THREADS, GROUPS)
    deep_back(const Chunk* __restrict__ gradient, Chunk* gradient_out,
              const uint4* __restrict__ weights, const float2* __restrict__ scale,
              const Signs* __restrict__ signs, int active_shortcut, int images, int blocks) {
    extern __shared__ Chunk memory[];
    const Part part(memory);
    const int last = 2 * blocks - 1;
    const Weights all{weights + last * CONVOLUTION, -CONVOLUTION, 2 * blocks * STEPS};
    begin(part, all);
    each_chunk(images, [&](int chunk, int spot, int place) {
        part.active[spot] = part.kept[place] = gradient[chunk];
    });
    signs += blockIdx.x * THREADS + threadIdx.x;
    const int all_signs = (images + IMAGES - 1) / IMAGES * THREADS;
    convolve_all(part, all, [&](const float (&sums)[TILES][SIDES][4], int convolution) {
        const int number = last - convolution;
        finish_back(sums, number % 2 == 0, active_shortcut && number == 0,
                    scale + number * (CHANNELS / 2), signs + number * all_signs, part);
    });
    each_chunk(images, [&](int chunk, int, int place) { gradient_out[chunk] = part.kept[place]; });
}
#endif

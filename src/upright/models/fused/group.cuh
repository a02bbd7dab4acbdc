// What a group of threads has of an image, and how it comes into shared memory: a part of layer.cu.

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

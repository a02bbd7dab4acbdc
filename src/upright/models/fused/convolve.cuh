// A 3x3 convolution of activations in shared memory, by the tensor cores: what the kernels of this
// folder share. It comes before them in the text that is compiled. docs/kernels.md has a picture.
//
// Shared memory holds activations as planes of eight channels: a plane is a row of pixels of 16
// bytes, with a border of zeros around the image. The border on the right of a line is that on the
// left of the next. Eight neighbours of a plane are what ldmatrix reads at once, from all banks;
// and eight channels are the n8 of an mma.
//
// A warp's tile of the output is 16 pixels of each of 8 lines, for 16 channels. Its weights, the B
// fragments, stay in registers while it walks down the lines: the A fragment that it reads of a
// line goes into the accumulators of three lines of the output. Where lines have 8 pixels, there
// are more channels, and their weights do not fit into registers: the register tile is the
// accumulators of all 8 lines, and the weights go through.

#ifndef ON_HOST
#include "instructions.cuh"
#endif

// Add two channels in half precision to two in float32.
__device__ __forceinline__ void add(uint32_t both, float& low, float& high) {
    float more_low, more_high;
    unpack(both, more_low, more_high);
    low += more_low, high += more_high;
}

// Norm and leaky ReLU.
__device__ __forceinline__ float activate(float value, float scale, float shift) {
    const float normed = value * scale + shift;
    return fmaxf(normed, normed * SLOPE);
}

struct alignas(16) Chunk {  // eight channels of a pixel
    uint32_t pairs[4];
};

constexpr int PLANES = CHANNELS / 8;
constexpr int SLICES = CHANNELS / 16;  // of 16 channels: k16 steps of a tap, and warps along n
constexpr int PITCH = WIDTH + 1;
constexpr int STRIPS = (WIDTH + 15) / 16;  // of 16 pixels: the m16 of an mma
constexpr int LINES = 8;                   // of a warp's tile

// Where a pixel is in a plane.
__device__ __forceinline__ int place_of(int line, int column) {
    return (line + 1) * PITCH + column + 1;
}

// Of a thread's activations of a convolution, 32 pairs of channels, which are positive.
struct alignas(8) Signs {
    uint32_t words[2];

    // Of a pair as it was rounded: a number in half precision is above zero where its bits are, as
    // a whole number.
    __device__ void keep(int pair, uint32_t both) {
        const uint32_t low = static_cast<int>(both << 16) > 0 ? 1 : 0;
        const uint32_t high = static_cast<int>(both) > 0xffff ? 2 : 0;
        words[pair / 16] |= (low | high) << pair % 16 * 2;
    }
    // Take a gradient of the activations back through the leaky ReLU.
    __device__ void backward(int pair, float& low, float& high) const {
        if (!(words[pair / 16] >> pair % 16 * 2 & 1)) low *= SLOPE;
        if (!(words[pair / 16] >> pair % 16 * 2 & 2)) high *= SLOPE;
    }
};

// `convolve` for lines of sixteen pixels or more.
template <int PIXELS, class Finish>
__device__ __forceinline__ void convolve_wide(const Chunk* source, int line0, int column0,
                                              const uint4* __restrict__ weights, Finish finish) {
    uint4 fragments[9 * SLICES];
#pragma unroll
    for (int each = 0; each < 9 * SLICES; ++each) fragments[each] = weights[each * 32 + LANE];

    // Of the four matrices: the left and right eight pixels, of the first and the second plane.
    const Chunk* place =
        source + LANE / 16 * PIXELS + place_of(line0, column0 + static_cast<int>(LANE % 16));
    float accumulators[3][2][4];
#pragma unroll
    for (int line = -1; line <= LINES; ++line) {
#pragma unroll
        for (int n8 = 0; n8 < 2; ++n8)
#pragma unroll
            for (int each = 0; each < 4; ++each) accumulators[(line + 4) % 3][n8][each] = 0.f;
#pragma unroll
        for (int step = 0; step < 3 * SLICES; ++step) {
            const int across = step / SLICES, plane = step % SLICES * 2;
            uint32_t a[4];
            ldmatrix(a, place + plane * PIXELS + line * PITCH + across - 1);
#pragma unroll
            for (int down = 0; down < 3; ++down) {
                const int to = line + 1 - down;
                if (to < 0 || to >= LINES) continue;
                const uint4 b = fragments[(3 * down + across) * SLICES + step % SLICES];
                mma(accumulators[(to + 3) % 3][0], a, b.x, b.y);
                mma(accumulators[(to + 3) % 3][1], a, b.z, b.w);
            }
        }
        const int done = line - 1;
        if (done < 0) continue;
#pragma unroll
        for (int n8 = 0; n8 < 2; ++n8)
#pragma unroll
            for (int right = 0; right < 2; ++right)
                finish(done, n8, right, accumulators[(done + 3) % 3][n8][2 * right],
                       accumulators[(done + 3) % 3][n8][2 * right + 1]);
    }
}

// `convolve` for lines of eight pixels, of which two are its sixteen.
template <int PIXELS, class Finish>
__device__ __forceinline__ void convolve_narrow(const Chunk* source,
                                                const uint4* __restrict__ weights, Finish finish) {
    // Of three taps: the weights come from L2, so those of the next three are asked for early.
    uint4 fragments[3 * SLICES];
#pragma unroll
    for (int each = 0; each < 3 * SLICES; ++each) fragments[each] = weights[each * 32 + LANE];

    // Of the four matrices: the upper and lower line of two, of the first and the second plane.
    const Chunk* place = source + LANE / 16 * PIXELS +
                         place_of(static_cast<int>(LANE / 8 % 2), static_cast<int>(LANE % 8));
    float accumulators[LINES / 2][2][4] = {};
#pragma unroll 1  // else the compiler asks for all weights at once, and lacks registers
    for (int down = 0; down < 3; ++down) {
#pragma unroll
        for (int each = 0; each < 3 * SLICES; ++each) {
            const int across = each / SLICES, plane = each % SLICES * 2;
            const uint4 b = fragments[each];
            if (down < 2) fragments[each] = weights[((down + 1) * 3 * SLICES + each) * 32 + LANE];
#pragma unroll
            for (int two = 0; two < LINES / 2; ++two) {
                uint32_t a[4];
                ldmatrix(a, place + plane * PIXELS + (2 * two + down - 1) * PITCH + across - 1);
                mma(accumulators[two][0], a, b.x, b.y);
                mma(accumulators[two][1], a, b.z, b.w);
            }
        }
    }
#pragma unroll
    for (int line = 0; line < LINES; ++line)
#pragma unroll
        for (int n8 = 0; n8 < 2; ++n8)
            finish(line, n8, 0, accumulators[line / 2][n8][line % 2 * 2],
                   accumulators[line / 2][n8][line % 2 * 2 + 1]);
}

// A warp's tile of a convolution. Of each line, the thread gets pairs of channels as the
// accumulators hold them: `finish(line, n8, right, low, high)` for the first and the second n8 of
// the warp's sixteen channels, and the pixels LANE / 4 and, with `right`, LANE / 4 + 8 of its
// sixteen; the pair is LANE % 4.
//
// `source` is the plane 0 of the image, `PIXELS` the size of a plane, and `weights` are those of
// the warp's channels.
template <int PIXELS, class Finish>
__device__ __forceinline__ void convolve(const Chunk* source, int line0, int column0,
                                         const uint4* __restrict__ weights, Finish finish) {
    if constexpr (WIDTH == 8)
        convolve_narrow<PIXELS>(source, weights, finish);
    else
        convolve_wide<PIXELS>(source, line0, column0, weights, finish);
}

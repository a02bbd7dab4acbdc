// A 3x3 convolution of activations in shared memory, by the matrix units: what the kernels of this
// folder share. It comes before them in the text that is compiled.
//
// Shared memory holds activations as planes of eight channels: a plane is a row of pixels of 16
// bytes, with a border of zeros around the image. The border on the right of a line is that on the
// left of the next. Eight neighbours of a plane are what ldmatrix reads at once, from all banks; and
// eight channels are what a product gives.
//
// A warp computes 16 pixels of each of 8 lines, for 16 channels. Its weights stay in registers
// while it walks down the lines: what it reads of a line goes into three lines of the output.
// Where lines have 8 pixels, there are more channels, and their weights do not fit there: it has the
// sums of all 8 lines in registers, and the weights go through.

#ifndef ON_HOST
typedef unsigned int uint32_t;
#define LANE (threadIdx.x & 31)
#define WARP (threadIdx.x >> 5)

__device__ __forceinline__ void load_matrices(uint32_t (&a)[4], const void* place) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(place));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address));
}

// The same of matrices whose columns are to be their rows.
__device__ __forceinline__ void load_transposed(uint32_t (&a)[4], const void* place) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(place));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address)
                 : "memory");
}

// Start to copy 16 bytes from global to shared memory.
__device__ __forceinline__ void copy_later(void* to, const void* from) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

// What the thread has started to copy since the last call becomes one lot.
__device__ __forceinline__ void end_lot() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until all lots of the thread are there but the last `LEFT`.
template <int LEFT>
__device__ __forceinline__ void await_lots() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#ifdef BFLOAT
#define HALF "bf16"
#else
#define HALF "f16"
#endif

// Sum += a b, of 16 pixels by 16 channels and 16 channels by 8.
__device__ __forceinline__ void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." HALF "." HALF
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t both;
    asm("cvt.rn." HALF "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ void unpack(uint32_t both, float& low, float& high) {
#ifdef BFLOAT
    low = __uint_as_float(both << 16);
    high = __uint_as_float(both & 0xffff0000u);
#else
    asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(low), "=f"(high)
        : "r"(both));
#endif
}

// The value of the lane whose number differs in one bit.
__device__ __forceinline__ float exchange(float value, int bit) {
    return __shfl_xor_sync(0xffffffffu, value, bit);
}
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
constexpr int DEPTH = CHANNELS / 16;  // products for a tap
constexpr int PITCH = WIDTH + 1;
constexpr int STRIPS = (WIDTH + 15) / 16;
constexpr int LINES = 8;

// Where a pixel is in a plane.
__device__ __forceinline__ int place_of(int line, int column) {
    return (line + 1) * PITCH + column + 1;
}

// Of a thread's activations of a convolution, 32 pairs of channels, which are positive.
struct alignas(8) Signs {
    uint32_t words[2];

    // Of a pair as it was rounded: a number in half precision is above zero where its bits are, as a
    // whole number.
    __device__ void keep(int pair, uint32_t both) {
        const uint32_t low = static_cast<int>(both << 16) > 0 ? 1 : 0;
        const uint32_t high = static_cast<int>(both) > 0xffff ? 2 : 0;
        words[pair / 16] |= (low | high) << pair % 16 * 2;
    }
    // Take a gradient of the activations back through the leaky ReLU.
    __device__ void go_back(int pair, float& low, float& high) const {
        if (!(words[pair / 16] >> pair % 16 * 2 & 1)) low *= SLOPE;
        if (!(words[pair / 16] >> pair % 16 * 2 & 2)) high *= SLOPE;
    }
};

// `convolve` for lines of sixteen pixels or more.
template <int PIXELS, class Finish>
__device__ __forceinline__ void convolve_wide(const Chunk* source, int line0, int column0,
                                              const uint4* __restrict__ weights, Finish finish) {
    uint4 kernel[9 * DEPTH];
#pragma unroll
    for (int each = 0; each < 9 * DEPTH; ++each) kernel[each] = weights[each * 32 + LANE];

    // Of the four matrices: the left and right eight pixels, of the first and the second plane.
    const Chunk* place =
        source + LANE / 16 * PIXELS + place_of(line0, column0 + static_cast<int>(LANE % 16));
    float sums[3][2][4];
#pragma unroll
    for (int line = -1; line <= LINES; ++line) {
#pragma unroll
        for (int side = 0; side < 2; ++side)
#pragma unroll
            for (int each = 0; each < 4; ++each) sums[(line + 4) % 3][side][each] = 0.f;
#pragma unroll
        for (int step = 0; step < 3 * DEPTH; ++step) {
            const int across = step / DEPTH, plane = step % DEPTH * 2;
            uint32_t a[4];
            load_matrices(a, place + plane * PIXELS + line * PITCH + across - 1);
#pragma unroll
            for (int down = 0; down < 3; ++down) {
                const int to = line + 1 - down;
                if (to < 0 || to >= LINES) continue;
                const uint4 b = kernel[(3 * down + across) * DEPTH + step % DEPTH];
                multiply(sums[(to + 3) % 3][0], a, b.x, b.y);
                multiply(sums[(to + 3) % 3][1], a, b.z, b.w);
            }
        }
        const int done = line - 1;
        if (done < 0) continue;
#pragma unroll
        for (int side = 0; side < 2; ++side)
#pragma unroll
            for (int right = 0; right < 2; ++right)
                finish(done, side, right, sums[(done + 3) % 3][side][2 * right],
                       sums[(done + 3) % 3][side][2 * right + 1]);
    }
}

// `convolve` for lines of eight pixels, of which two are its sixteen.
template <int PIXELS, class Finish>
__device__ __forceinline__ void convolve_narrow(const Chunk* source,
                                                const uint4* __restrict__ weights, Finish finish) {
    // Of three taps: the weights come from far, so those of the next three are asked for early.
    uint4 kernel[3 * DEPTH];
#pragma unroll
    for (int each = 0; each < 3 * DEPTH; ++each) kernel[each] = weights[each * 32 + LANE];

    // Of the four matrices: the upper and lower line of two, of the first and the second plane.
    const Chunk* place = source + LANE / 16 * PIXELS +
                         place_of(static_cast<int>(LANE / 8 % 2), static_cast<int>(LANE % 8));
    float sums[LINES / 2][2][4] = {};
#pragma unroll 1  // else the compiler asks for all weights at once, and lacks registers
    for (int down = 0; down < 3; ++down) {
#pragma unroll
        for (int each = 0; each < 3 * DEPTH; ++each) {
            const int across = each / DEPTH, plane = each % DEPTH * 2;
            const uint4 b = kernel[each];
            if (down < 2) kernel[each] = weights[((down + 1) * 3 * DEPTH + each) * 32 + LANE];
#pragma unroll
            for (int two = 0; two < LINES / 2; ++two) {
                uint32_t a[4];
                load_matrices(a, place + plane * PIXELS + (2 * two + down - 1) * PITCH + across - 1);
                multiply(sums[two][0], a, b.x, b.y);
                multiply(sums[two][1], a, b.z, b.w);
            }
        }
    }
#pragma unroll
    for (int line = 0; line < LINES; ++line)
#pragma unroll
        for (int side = 0; side < 2; ++side)
            finish(line, side, 0, sums[line / 2][side][line % 2 * 2],
                   sums[line / 2][side][line % 2 * 2 + 1]);
}

// A warp's part of a convolution. Of each line, the thread gets pairs of channels:
// `finish(line, side, right, low, high)` for the planes 0 and 1 of the warp's sixteen channels, and
// the pixels LANE / 4 and, with `right`, LANE / 4 + 8 of its sixteen; the pair is LANE % 4.
//
// `source` is the plane 0 of the image, `PIXELS` the size of a plane, and `weights` are those of the
// warp's channels.
template <int PIXELS, class Finish>
__device__ __forceinline__ void convolve(const Chunk* source, int line0, int column0,
                                         const uint4* __restrict__ weights, Finish finish) {
    if constexpr (WIDTH == 8)
        convolve_narrow<PIXELS>(source, weights, finish);
    else
        convolve_wide<PIXELS>(source, line0, column0, weights, finish);
}

// Residual blocks of one stage of a ResNet, one after another, in evaluation mode, in one kernel.
//
// A block is R += conv2(act(norm2(conv1(A)))), then A = act(norm(R)) with the norm that comes next.
// With STEM the network's first convolution comes before them, after which R is A.
// A group of threads takes IMAGES images through all blocks, and their activations never leave
// shared memory: layer by layer they would be written and read again, nine times for the taps.
//
// Shared memory holds A and T, what is between the two convolutions, as planes of eight channels:
// a plane is a row of pixels of 16 bytes, with a border of zeros around the image. The border on
// the right of a line is that on the left of the next. Eight neighbours of a plane are what
// ldmatrix reads at once, from all banks; and eight channels are what a product gives.
//
// A warp computes 16 pixels of each of 8 lines, for 16 channels. Its weights stay in registers
// while it walks down the lines: what it reads of a line goes into three lines of the output.

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
#endif

struct alignas(16) Chunk {  // eight channels of a pixel
    uint32_t pairs[4];
};

constexpr int PLANES = CHANNELS / 8;
constexpr int DEPTH = CHANNELS / 16;  // products for a tap
constexpr int PITCH = WIDTH + 1;
constexpr int PIXELS = (HEIGHT + 2) * PITCH + 1;
constexpr int STRIPS = WIDTH / 16;
constexpr int LINES = 8;
constexpr int BANDS = HEIGHT / LINES;
constexpr int THREADS = 32 * IMAGES * STRIPS * BANDS * DEPTH;

// Where a warp works.
struct Part {
    int image, line, column, half;
    __device__ explicit Part(int warp)
        : image(warp / (STRIPS * BANDS * DEPTH)),
          line(warp / (STRIPS * DEPTH) % BANDS * LINES),
          column(warp / DEPTH % STRIPS * 16),
          half(warp % DEPTH) {}
};

__device__ __forceinline__ int place_of(int line, int column) {
    return (line + 1) * PITCH + column + 1;
}

__device__ __forceinline__ float activate(float value, float scale, float shift) {
    const float normed = value * scale + shift;
    return fmaxf(normed, normed * SLOPE);
}

enum class Role { STEM_OF_NETWORK, FIRST_OF_BLOCK, SECOND_OF_BLOCK };

// One convolution of a warp's part, and what follows it.
template <Role ROLE>
__device__ __forceinline__ void convolve(const Chunk* source, Chunk* target, Chunk* residual,
                                         const uint4* __restrict__ weights,
                                         const float2* __restrict__ scale,
                                         const float2* __restrict__ shift, const Part& part) {
    uint4 kernel[9 * DEPTH];
    weights += part.half * 9 * DEPTH * 32 + LANE;
#pragma unroll
    for (int each = 0; each < 9 * DEPTH; ++each) kernel[each] = weights[each * 32];

    // Of the four matrices: the left and right eight pixels, of the first and the second plane.
    const Chunk* place = source + (part.image * PLANES + LANE / 16) * PIXELS +
                         place_of(part.line, part.column + LANE % 16);
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
        const int column = part.column + LANE / 4;
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            const int plane = 2 * part.half + side, pair = LANE % 4;
            const float2 factor = scale[4 * plane + pair], offset = shift[4 * plane + pair];
#pragma unroll
            for (int right = 0; right < 2; ++right) {
                const int y = part.line + done, x = column + 8 * right;
                float low = sums[(done + 3) % 3][side][2 * right];
                float high = sums[(done + 3) % 3][side][2 * right + 1];
                const int at = part.image * PLANES + plane;
                uint32_t& kept = residual[at * HEIGHT * WIDTH + y * WIDTH + x].pairs[pair];
                if (ROLE == Role::SECOND_OF_BLOCK) {
                    float other_low, other_high;
                    unpack(kept, other_low, other_high);
                    low += other_low, high += other_high;
                    kept = pack(low, high);
                }
                const uint32_t active =
                    pack(activate(low, factor.x, offset.x), activate(high, factor.y, offset.y));
                target[at * PIXELS + place_of(y, x)].pairs[pair] = active;
                if (ROLE == Role::STEM_OF_NETWORK) kept = active;
            }
        }
    }
}

// Images, N x H x W x C: the activations and the residuals that enter, and those that leave. With
// STEM, images enter as activations, and residuals are not read.
// Weights of each convolution as warps hold them; scales and shifts of the norm that follows it.
extern "C" __global__ void __launch_bounds__(THREADS, GROUPS)
    stage(const Chunk* __restrict__ active, const Chunk* __restrict__ raw, Chunk* active_out,
          Chunk* raw_out, const uint4* __restrict__ weights, const float2* __restrict__ scale,
          const float2* __restrict__ shift, int images, int blocks) {
    extern __shared__ Chunk memory[];
    Chunk* const outer = memory;
    Chunk* const inner = outer + IMAGES * PLANES * PIXELS;
    Chunk* const residual = inner + IMAGES * PLANES * PIXELS;
    constexpr int SIZE = HEIGHT * WIDTH * PLANES;
    const int first = blockIdx.x * IMAGES, present = min(IMAGES, images - first);

    for (int each = threadIdx.x; each < 2 * IMAGES * PLANES * PIXELS; each += THREADS)
        memory[each] = Chunk{{0, 0, 0, 0}};
    __syncthreads();
    Chunk* const entry = STEM ? inner : outer;
    for (int each = threadIdx.x; each < present * SIZE; each += THREADS) {
        const int image = each / SIZE, pixel = each % SIZE / PLANES, plane = each % PLANES;
        const int at = image * PLANES + plane;
        entry[at * PIXELS + place_of(pixel / WIDTH, pixel % WIDTH)] = active[first * SIZE + each];
        if (!STEM) residual[at * HEIGHT * WIDTH + pixel] = raw[first * SIZE + each];
    }
    __syncthreads();

    const Part part(WARP);
    const auto next = [&] {
        __syncthreads();
        weights += DEPTH * 9 * DEPTH * 32, scale += CHANNELS / 2, shift += CHANNELS / 2;
    };
    if (STEM) {
        convolve<Role::STEM_OF_NETWORK>(inner, outer, residual, weights, scale, shift, part);
        next();
    }
    for (int block = 0; block < blocks; ++block) {
        convolve<Role::FIRST_OF_BLOCK>(outer, inner, residual, weights, scale, shift, part);
        next();
        convolve<Role::SECOND_OF_BLOCK>(inner, outer, residual, weights, scale, shift, part);
        next();
    }

    for (int each = threadIdx.x; each < present * SIZE; each += THREADS) {
        const int image = each / SIZE, pixel = each % SIZE / PLANES, plane = each % PLANES;
        const int at = image * PLANES + plane;
        active_out[first * SIZE + each] =
            outer[at * PIXELS + place_of(pixel / WIDTH, pixel % WIDTH)];
        raw_out[first * SIZE + each] = residual[at * HEIGHT * WIDTH + pixel];
    }
}

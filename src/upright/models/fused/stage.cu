// Residual blocks of one stage of a ResNet, one after another, in evaluation mode, in one kernel.
//
// A block is R += conv2(act(norm2(conv1(A)))), then A = act(norm(R)) with the norm that comes next.
// With STEM the network's first convolution comes before them, after which R is A.
// A group of threads takes IMAGES images through all blocks, and their activations never leave
// shared memory: layer by layer they would be written and read again, nine times for the taps.

constexpr int PIXELS = (HEIGHT + 2) * PITCH + 1;
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

__device__ __forceinline__ float activate(float value, float scale, float shift) {
    const float normed = value * scale + shift;
    return fmaxf(normed, normed * SLOPE);
}

enum class Role { STEM_OF_NETWORK, FIRST_OF_BLOCK, SECOND_OF_BLOCK };

// One convolution of a warp's part, and what follows it.
template <Role ROLE>
__device__ __forceinline__ void layer(const Chunk* source, Chunk* target, Chunk* residual,
                                      const uint4* __restrict__ weights,
                                      const float2* __restrict__ scale,
                                      const float2* __restrict__ shift, const Part& part) {
    const auto finish = [&](int line, int side, int right, float low, float high) {
        const int plane = 2 * part.half + side, pair = LANE % 4;
        const int y = part.line + line, x = part.column + static_cast<int>(LANE / 4) + 8 * right;
        const int at = part.image * PLANES + plane;
        uint32_t& kept = residual[at * HEIGHT * WIDTH + y * WIDTH + x].pairs[pair];
        if (ROLE == Role::SECOND_OF_BLOCK) {
            add(kept, low, high);
            kept = pack(low, high);
        }
        const float2 factor = scale[4 * plane + pair], offset = shift[4 * plane + pair];
        const uint32_t active =
            pack(activate(low, factor.x, offset.x), activate(high, factor.y, offset.y));
        target[at * PIXELS + place_of(y, x)].pairs[pair] = active;
        if (ROLE == Role::STEM_OF_NETWORK) kept = active;
    };
    convolve<PIXELS>(source + part.image * PLANES * PIXELS, part.line, part.column,
                     weights + part.half * 9 * DEPTH * 32, finish);
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
        layer<Role::STEM_OF_NETWORK>(inner, outer, residual, weights, scale, shift, part);
        next();
    }
    for (int block = 0; block < blocks; ++block) {
        layer<Role::FIRST_OF_BLOCK>(outer, inner, residual, weights, scale, shift, part);
        next();
        layer<Role::SECOND_OF_BLOCK>(inner, outer, residual, weights, scale, shift, part);
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

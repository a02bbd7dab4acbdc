// Residual blocks of one stage of a ResNet, one after another, in evaluation mode, in one kernel.
//
// A residual block is R += conv2(act(norm2(conv1(A)))), then A = act(norm(R)) with the norm that comes next.
// With STEM the network's first convolution comes before them, after which R is A.
// A thread block takes IMAGES images through all residual blocks, and their activations never leave
// shared memory: layer by layer they would be written and read again, nine times for the taps.
//
// With SIGNS there is a backward kernel, too, from the gradient of the R that leaves to that of the
// R that enters, or with STEM of the images. In evaluation mode a norm is affine, so it needs of
// each activation no more than whether it is positive: the forward kernel keeps one bit of each,
// which the thread of the same number reads in the backward kernel.

constexpr int PIXELS = (HEIGHT + 2) * PITCH + 1;
constexpr int BANDS = HEIGHT / LINES;
constexpr int THREADS = 32 * IMAGES * STRIPS * BANDS * SLICES;
constexpr int KERNEL = SLICES * 9 * SLICES * 32;  // of a convolution, in uint4

// Where a warp works: 8 lines of 16 pixels of an image, and a slice of 16 channels.
struct WarpTile {
    int image, line, column, slice;
    __device__ explicit WarpTile(int warp)
        : image(warp / (STRIPS * BANDS * SLICES)),
          line(warp / (STRIPS * SLICES) % BANDS * LINES),
          column(warp / SLICES % STRIPS * 16),
          slice(warp % SLICES) {}

    // Of a pair of channels that `convolve` gives the thread: its place in a norm's constants, its
    // number, and its place in planes with a border and in those without.
    __device__ unsigned channels(int n8) const {
        return 4 * (2 * slice + n8) + LANE % 4;
    }
    __device__ static int pair(int line, int n8, int right) {
        return 4 * line + 2 * n8 + right;
    }
    __device__ int bordered(int line, int n8, int right) const {
        return plane(n8) * PIXELS + place_of(this->line + line, x(right));
    }
    __device__ int bare(int line, int n8, int right) const {
        return plane(n8) * HEIGHT * WIDTH + (this->line + line) * WIDTH + x(right);
    }

private:
    __device__ int plane(int n8) const { return image * PLANES + 2 * slice + n8; }
    __device__ int x(int right) const { return column + static_cast<int>(LANE / 4) + 8 * right; }
};

// Fill planes with zeros: those outside of an image stay.
__device__ __forceinline__ void clear(Chunk* planes) {
    for (int each = threadIdx.x; each < 2 * IMAGES * PLANES * PIXELS; each += THREADS)
        planes[each] = Chunk{{0, 0, 0, 0}};
    __syncthreads();
}

// Call `use(chunk, bordered, bare)` for the chunks of the thread block's images: where each is in
// memory, and in planes with and without a border.
template <class Use>
__device__ __forceinline__ void each_chunk(int images, Use use) {
    constexpr int SIZE = HEIGHT * WIDTH * PLANES;
    const int first = blockIdx.x * IMAGES, present = min(IMAGES, images - first);
#pragma unroll 2
    for (int each = threadIdx.x; each < present * SIZE; each += THREADS) {
        const int plane = each / SIZE * PLANES + each % PLANES, pixel = each % SIZE / PLANES;
        use(first * SIZE + each, plane * PIXELS + place_of(pixel / WIDTH, pixel % WIDTH),
            plane * HEIGHT * WIDTH + pixel);
    }
}

enum class Role { STEM_OF_NETWORK, FIRST_OF_BLOCK, SECOND_OF_BLOCK };

// One convolution of a warp's tile, and what follows it.
template <Role ROLE>
__device__ __forceinline__ void layer(const Chunk* source, Chunk* target, Chunk* residual,
                                      const uint4* __restrict__ weights,
                                      const float2* __restrict__ scale,
                                      const float2* __restrict__ shift, Signs* signs,
                                      const WarpTile& warp) {
    Signs mine{};
    const auto finish = [&](int line, int n8, int right, float low, float high) {
        uint32_t& kept = residual[warp.bare(line, n8, right)].pairs[LANE % 4];
        if (ROLE == Role::SECOND_OF_BLOCK) {
            add(kept, low, high);
            kept = pack(low, high);
        }
        const float2 factor = scale[warp.channels(n8)], offset = shift[warp.channels(n8)];
        const uint32_t active =
            pack(activate(low, factor.x, offset.x), activate(high, factor.y, offset.y));
        target[warp.bordered(line, n8, right)].pairs[LANE % 4] = active;
        if (ROLE == Role::STEM_OF_NETWORK) kept = active;
        if (SIGNS) mine.keep(warp.pair(line, n8, right), active);
    };
    convolve<PIXELS>(source + warp.image * PLANES * PIXELS, warp.line, warp.column,
                     weights + warp.slice * 9 * SLICES * 32, finish);
    if (SIGNS) *signs = mine;
}

// Images, N x H x W x C: the activations and the residuals that enter, and those that leave. With
// STEM, images enter as activations, and residuals are not read.
// Weights of each convolution as B fragments; scales and shifts of the norm that follows it.
// With SIGNS, those of what enters the first residual block and of what each convolution gives.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    stage(const Chunk* __restrict__ active, const Chunk* __restrict__ raw, Chunk* active_out,
          Chunk* raw_out, const uint4* __restrict__ weights, const float2* __restrict__ scale,
          const float2* __restrict__ shift, Signs* signs, int images, int residual_blocks) {
    extern __shared__ Chunk memory[];
    Chunk* const outer = memory;
    Chunk* const inner = outer + IMAGES * PLANES * PIXELS;
    Chunk* const residual = inner + IMAGES * PLANES * PIXELS;

    clear(memory);
    Chunk* const entry = STEM ? inner : outer;
    each_chunk(images, [&](int chunk, int bordered, int bare) {
        entry[bordered] = active[chunk];
        if (!STEM) residual[bare] = raw[chunk];
    });
    __syncthreads();

    const WarpTile warp(WARP);
    signs += blockIdx.x * THREADS + threadIdx.x;
    const int all_signs = (images + IMAGES - 1) / IMAGES * THREADS;
    const auto next = [&] {
        __syncthreads();
        weights += KERNEL, scale += CHANNELS / 2, shift += CHANNELS / 2, signs += all_signs;
    };
    if (STEM) {
        layer<Role::STEM_OF_NETWORK>(inner, outer, residual, weights, scale, shift, signs, warp);
        next();
    } else if (SIGNS) {
        Signs mine{};
#pragma unroll
        for (int pair = 0; pair < 4 * LINES; ++pair) {
            const int line = pair / 4, n8 = pair / 2 % 2, right = pair % 2;
            mine.keep(pair, outer[warp.bordered(line, n8, right)].pairs[LANE % 4]);
        }
        *signs = mine;
        signs += all_signs;
    }
    for (int block = 0; block < residual_blocks; ++block) {
        layer<Role::FIRST_OF_BLOCK>(outer, inner, residual, weights, scale, shift, signs, warp);
        next();
        layer<Role::SECOND_OF_BLOCK>(inner, outer, residual, weights, scale, shift, signs, warp);
        next();
    }

    each_chunk(images, [&](int chunk, int bordered, int bare) {
        active_out[chunk] = outer[bordered];
        raw_out[chunk] = residual[bare];
    });
}

#if SIGNS
// The gradient of what a convolution read, taken on through the activation and the norm before it.
// That of a block's first is added to the gradient of R, in place: that of its second is elsewhere.
template <Role ROLE>
__device__ __forceinline__ void layer_backward(const Chunk* source, Chunk* target,
                                               const uint4* __restrict__ weights,
                                               const float2* __restrict__ scale,
                                               const Signs* __restrict__ signs,
                                               bool active_shortcut, const WarpTile& warp) {
    const Signs mine = ROLE == Role::STEM_OF_NETWORK ? Signs{} : *signs;
    const auto finish = [&](int line, int n8, int right, float low, float high) {
        uint32_t& place = target[warp.bordered(line, n8, right)].pairs[LANE % 4];
        if (ROLE != Role::STEM_OF_NETWORK) {
            const float2 factor = scale[warp.channels(n8)];
            if (ROLE == Role::FIRST_OF_BLOCK && active_shortcut) add(place, low, high);
            mine.backward(warp.pair(line, n8, right), low, high);
            low *= factor.x, high *= factor.y;
            if (ROLE == Role::FIRST_OF_BLOCK && !active_shortcut) add(place, low, high);
        }
        place = pack(low, high);
    };
    convolve<PIXELS>(source + warp.image * PLANES * PIXELS, warp.line, warp.column,
                     weights + warp.slice * 9 * SLICES * 32, finish);
}

// The gradient of the R that leaves, and that of the R that enters, or with STEM of the images.
// Weights of each convolution as for the forward kernel, but transposed; scales of the norm before
// each convolution of a residual block; signs by the forward kernel. The shortcut of the first
// block may begin after the activation.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    stage_backward(const Chunk* __restrict__ gradient, Chunk* gradient_out,
                   const uint4* __restrict__ weights, const float2* __restrict__ scale,
                   const Signs* __restrict__ signs, int active_shortcut, int images,
                   int residual_blocks) {
    extern __shared__ Chunk memory[];
    Chunk* const outer = memory;
    Chunk* const inner = outer + IMAGES * PLANES * PIXELS;

    clear(memory);
    each_chunk(images, [&](int chunk, int bordered, int) { outer[bordered] = gradient[chunk]; });
    __syncthreads();

    const WarpTile warp(WARP);
    const int thread_blocks = (images + IMAGES - 1) / IMAGES;
    const auto signs_of = [&](int number) {
        return signs + (number * thread_blocks + blockIdx.x) * THREADS + threadIdx.x;
    };
    for (int number = 2 * residual_blocks - 1; number > 0; number -= 2) {
        const uint4* kernels = weights + (number + STEM) * KERNEL;
        layer_backward<Role::SECOND_OF_BLOCK>(outer, inner, kernels,
                                              scale + number * (CHANNELS / 2),
                                              signs_of(number), false, warp);
        __syncthreads();
        layer_backward<Role::FIRST_OF_BLOCK>(inner, outer, kernels - KERNEL,
                                             scale + (number - 1) * (CHANNELS / 2),
                                             signs_of(number - 1),
                                             number == 1 && active_shortcut, warp);
        __syncthreads();
    }
    if (STEM) {
        layer_backward<Role::STEM_OF_NETWORK>(outer, inner, weights, scale, signs, false, warp);
        __syncthreads();
    }

    const Chunk* const last = STEM ? inner : outer;
    each_chunk(images, [&](int chunk, int bordered, int) { gradient_out[chunk] = last[bordered]; });
}
#endif

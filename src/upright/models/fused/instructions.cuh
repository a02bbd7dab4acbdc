// The PTX instructions that the kernels of this folder are made of. Tests have others in their
// place, which carry them out on a CPU (tests/helpers/on_host/cuda.h).

typedef unsigned int uint32_t;
#define LANE (threadIdx.x & 31)
#define WARP (threadIdx.x >> 5)

// Four 8 x 8 matrices as an A fragment: lane 8m + r says where row r of matrix m is.
__device__ __forceinline__ void ldmatrix(uint32_t (&a)[4], const void* place) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(place));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address));
}

// The same of matrices whose columns are to be their rows.
__device__ __forceinline__ void ldmatrix_transposed(uint32_t (&a)[4], const void* place) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(place));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address)
                 : "memory");
}

// Start to copy 16 bytes from global to shared memory, past L1.
__device__ __forceinline__ void cp_async(void* to, const void* from) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

// What the thread has started to copy since the last call becomes one commit group.
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait until all commit groups of the thread are there but the last `LEFT`.
template <int LEFT>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#ifdef BFLOAT
#define PTX_TYPE "bf16"
#else
#define PTX_TYPE "f16"
#endif

// Sum += a b on the tensor cores: fragments of 16 pixels by 16 channels and 16 channels by 8.
__device__ __forceinline__ void mma(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." PTX_TYPE "." PTX_TYPE
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two channels in float32 as two in half precision.
__device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t both;
    asm("cvt.rn." PTX_TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
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
__device__ __forceinline__ float shuffle_xor(float value, int bit) {
    return __shfl_xor_sync(0xffffffffu, value, bit);
}

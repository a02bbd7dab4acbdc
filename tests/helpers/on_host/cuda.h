// Runs CUDA kernels on a CPU: their threads are fibers, and the instructions that a warp takes
// together are carried out when all its lanes have come to them. Where the lanes of a warp come to
// different ones, as where a thread leaves early, it stops with an error.

#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define ON_HOST
#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)

using std::max;
using std::min;

struct uint4 {
    uint32_t x, y, z, w;
};
struct float2 {
    float x, y;
};
struct Index {
    int x;
};

enum class At { START, LDMATRIX, LDMATRIX_TRANSPOSED, MMA, SHUFFLE, BARRIER, END };

struct Copy {
    void* to;
    const void* from;
};

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    At at = At::START;
    const void* place;
    uint32_t (*matrices)[4];
    float (*sum)[4];
    uint32_t a[4], b[2];
    float value;
    int bit;
    std::vector<std::vector<Copy>> commit_groups;  // copies under way; the last is not committed
};

static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static Index threadIdx, blockIdx;

#define LANE (threadIdx.x & 31)
#define WARP (threadIdx.x >> 5)

static void stop(const char* why) {
    std::fprintf(stderr, "%s\n", why);
    std::abort();
}

static void wait_at(At at) {
    const int mine = threadIdx.x;
    fibers[mine].at = at;
    swapcontext(&fibers[mine].context, &scheduler);
}

static void __syncthreads() { wait_at(At::BARRIER); }

static void ldmatrix(uint32_t (&a)[4], const void* place) {
    Fiber& fiber = fibers[threadIdx.x];
    fiber.place = place, fiber.matrices = &a;
    wait_at(At::LDMATRIX);
}

static void ldmatrix_transposed(uint32_t (&a)[4], const void* place) {
    Fiber& fiber = fibers[threadIdx.x];
    fiber.place = place, fiber.matrices = &a;
    wait_at(At::LDMATRIX_TRANSPOSED);
}

static void mma(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    Fiber& fiber = fibers[threadIdx.x];
    std::copy(a, a + 4, fiber.a);
    fiber.b[0] = b0, fiber.b[1] = b1, fiber.sum = &sum;
    wait_at(At::MMA);
}

static float shuffle_xor(float value, int bit) {
    const int mine = threadIdx.x;
    fibers[mine].value = value, fibers[mine].bit = bit;
    wait_at(At::SHUFFLE);
    return fibers[mine].value;
}

static void __syncwarp() { shuffle_xor(0, 0); }

// A copy may come at any time from here on: until it is awaited, there is neither old nor new.
static void cp_async(void* to, const void* from) {
    std::memset(to, 0xff, 16);
    fibers[threadIdx.x].commit_groups.back().push_back({to, from});
}

static void cp_async_commit() { fibers[threadIdx.x].commit_groups.emplace_back(); }

template <int LEFT>
static void cp_async_wait() {
    auto& commit_groups = fibers[threadIdx.x].commit_groups;
    for (; commit_groups.size() - 1 > LEFT; commit_groups.erase(commit_groups.begin()))
        for (const Copy& copy : commit_groups.front()) std::memcpy(copy.to, copy.from, 16);
}

static float rsqrtf(float value) { return 1 / std::sqrt(value); }

static void atomicAdd(float* place, float value) { *place += value; }

static uint16_t to_half(float value) {
    uint16_t bits;
#ifdef BFLOAT
    uint32_t all;
    std::memcpy(&all, &value, 4);
    bits = (all + 0x7fff + (all >> 16 & 1)) >> 16;
#else
    const _Float16 half = static_cast<_Float16>(value);
    std::memcpy(&bits, &half, 2);
#endif
    return bits;
}

static float from_half(uint16_t bits) {
#ifdef BFLOAT
    const uint32_t all = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &all, 4);
    return value;
#else
    _Float16 half;
    std::memcpy(&half, &bits, 2);
    return half;
#endif
}

static uint32_t pack(float low, float high) {
    return to_half(low) | static_cast<uint32_t>(to_half(high)) << 16;
}

static void unpack(uint32_t both, float& low, float& high) {
    low = from_half(both & 0xffff), high = from_half(both >> 16);
}

#include "convolve.cuh"

Chunk memory[(SHARED_BYTES + sizeof(Chunk) - 1) / sizeof(Chunk)];

// ldmatrix: lane 8m+r says where row r of matrix m is; lane 4r+p gets pair p of row r of each.
static void run_ldmatrix(Fiber* warp) {
    for (int lane = 0; lane < 32; ++lane)
        for (int matrix = 0; matrix < 4; ++matrix) {
            const void* row = warp[8 * matrix + lane / 4].place;
            std::memcpy(&(*warp[lane].matrices)[matrix],
                        static_cast<const char*>(row) + 4 * (lane % 4), 4);
        }
}

// ldmatrix.trans: lane 4r+p gets of each matrix column r, rows 2p and 2p+1.
static void run_ldmatrix_transposed(Fiber* warp) {
    for (int lane = 0; lane < 32; ++lane)
        for (int matrix = 0; matrix < 4; ++matrix) {
            uint16_t both[2];
            for (int odd = 0; odd < 2; ++odd) {
                const void* row = warp[8 * matrix + lane % 4 * 2 + odd].place;
                std::memcpy(&both[odd], static_cast<const char*>(row) + 2 * (lane / 4), 2);
            }
            std::memcpy(&(*warp[lane].matrices)[matrix], both, 4);
        }
}

// mma.m16n8k16: lane 4r+p holds of A rows r and r+8, columns 2p, 2p+1 and those plus 8; of B the
// same rows as A has columns, of column r; and of the sum rows r and r+8, columns 2p and 2p+1.
static void run_mma(Fiber* warp) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane)
        for (int part = 0; part < 4; ++part) {
            const int row = lane / 4 + part % 2 * 8, column = lane % 4 * 2 + part / 2 * 8;
            unpack(warp[lane].a[part], a[row][column], a[row][column + 1]);
            if (part < 2) {
                const int inner = lane % 4 * 2 + part * 8;
                unpack(warp[lane].b[part], b[inner][lane / 4], b[inner + 1][lane / 4]);
            }
        }
    for (int lane = 0; lane < 32; ++lane)
        for (int each = 0; each < 4; ++each) {
            const int row = lane / 4 + each / 2 * 8, column = lane % 4 * 2 + each % 2;
            for (int inner = 0; inner < 16; ++inner)
                (*warp[lane].sum)[each] += a[row][inner] * b[inner][column];
        }
}

// The same bit in all lanes: each gets the value of its partner.
static void run_shuffle(Fiber* warp) {
    float before[32];
    for (int lane = 0; lane < 32; ++lane) before[lane] = warp[lane].value;
    for (int lane = 0; lane < 32; ++lane) warp[lane].value = before[lane ^ warp[lane].bit];
}

static std::function<void()> kernel;

static void thread() {
    const int mine = threadIdx.x;
    kernel();
    fibers[mine].at = At::END;
}

static void advance_warp(int warp) {
    for (int lane = 0; lane < 32; ++lane) {
        threadIdx.x = 32 * warp + lane;
        swapcontext(&scheduler, &fibers[threadIdx.x].context);
        if (fibers[threadIdx.x].at != fibers[32 * warp].at)
            stop("the lanes of a warp are not together");
    }
    Fiber* lanes = &fibers[32 * warp];
    if (lanes->at == At::LDMATRIX) run_ldmatrix(lanes);
    if (lanes->at == At::LDMATRIX_TRANSPOSED) run_ldmatrix_transposed(lanes);
    if (lanes->at == At::MMA) run_mma(lanes);
    if (lanes->at == At::SHUFFLE) run_shuffle(lanes);
}

static void run_thread_block() {
    std::memset(memory, 0xff, sizeof memory);  // NaN: what nobody wrote must not be read
    for (Fiber& fiber : fibers) {
        constexpr size_t SIZE = 64 << 10;
        if (!fiber.stack) fiber.stack = std::make_unique<char[]>(SIZE);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = SIZE;
        fiber.context.uc_link = &scheduler;
        fiber.at = At::START;
        fiber.commit_groups.assign(1, {});
        makecontext(&fiber.context, thread, 0);
    }
    const auto all_at = [](At at) {
        return std::all_of(fibers.begin(), fibers.end(), [=](auto& each) { return each.at == at; });
    };
    // From barrier to barrier one warp runs after another, in every second thread block backwards:
    // where a barrier is missing, one is far ahead of others.
    const int warps = static_cast<int>(fibers.size()) / 32;
    while (!all_at(At::END)) {
        for (int each = 0; each < warps; ++each) {
            const int warp = blockIdx.x % 2 ? warps - 1 - each : each;
            do advance_warp(warp);
            while (fibers[32 * warp].at != At::BARRIER && fibers[32 * warp].at != At::END);
        }
        if (!all_at(At::BARRIER) && !all_at(At::END))
            stop("the warps of a thread block are not together");
    }
}

// Launch `grid` thread blocks of `threads` threads.
static void run_grid(int grid, int threads, std::function<void()> body) {
    kernel = std::move(body);
    fibers = std::vector<Fiber>(threads);
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) run_thread_block();
}

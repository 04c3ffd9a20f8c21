// CUDA's words for g++: compiles a .cu file into host code that runs each block's threads as fibers of one host thread.
// For tests alone. It gives barriers, shuffles, ballots and atomics their meaning and refuses what a device would leave
// undefined: a barrier or a warp-wide call that some thread never reaches. Blocks run one after the other, or interleaved.
//
// `bs_host_schedule(s)` chooses the order of the next launch of its thread, 0 where it is not called: bit 0 runs threads and blocks backwards,
// bit 1 lets others run at every atomic, bit 2 also runs up to eight blocks at once in a random order of blocks and threads (s >> 4 is its
// seed), bit 3 lets others run at one access to memory in eight where accesses are recorded (recorder.cpp). A result that depends on it is a race.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(BS_HOST_RECORDED)
#include "recorder.h"
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define __shared__ static
#else
#define __shared__ static __attribute__((section("bs_shared")))  // one place, so that each block finds it poisoned
#endif
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct BsDim {
  unsigned x = 1, y = 1, z = 1;
};
static BsDim threadIdx, blockIdx, blockDim, gridDim;

namespace bs_host {

// Saves the registers a callee must keep, and takes those of another stack.
extern "C" void bs_host_switch(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.local bs_host_switch
.type bs_host_switch, @function
bs_host_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size bs_host_switch, .-bs_host_switch
)");
#else
#error "the fibers are written for x86-64"
#endif

constexpr std::size_t STACK = 64 << 10;
constexpr unsigned MOST = 1024, LANES = 32;

constexpr unsigned RESIDENT = 8;  // blocks that run at once where they are interleaved

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  const unsigned* turn = nullptr;  // waits while *turn == seen
  unsigned seen = 0;
  bool done = false;
};

// Threads that meet: whoever comes last lets all go on. Two rounds of values, as none can be a whole round ahead.
struct Meeting {
  unsigned turn = 0, here = 0, expected = 0;
  std::uint64_t values[2][LANES];
};

struct Block {
  Fiber fibers[MOST];
  Meeting meeting, warps[MOST / LANES];
  unsigned syncs[MOST / LANES];  // calls of __syncwarp that each warp has passed
  unsigned index = 0;
  std::vector<char> shared;  // its shared memory while another block runs
};

static Block resident[RESIDENT], *block = nullptr;
static Fiber* now = nullptr;
static void* scheduler = nullptr;
static void (*body)(void* const*) = nullptr;
static void* const* arguments = nullptr;
static int schedule = 0;                 // of the launch that runs
static thread_local int next_order = 0;  // what its thread asked for
static unsigned random_state = 1;
static std::mutex one_launch;

#if defined(__SANITIZE_ADDRESS__)
static const void* home = nullptr;
static std::size_t home_size = 0;
#endif

inline void to_scheduler() {
  Fiber* self = now;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(self->done ? nullptr : &fake, home, home_size);
#endif
  bs_host_switch(&self->stack_pointer, scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, &home, &home_size);
#endif
}

static void enter() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &home, &home_size);
#endif
  body(arguments);
  now->done = true;
  to_scheduler();
}

inline void prepare(Fiber& fiber) {
  if (!fiber.stack) fiber.stack = (char*)std::aligned_alloc(64, STACK);
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(fiber.stack, STACK);  // the thread before left without clearing its frames
#endif
  void** top = (void**)(fiber.stack + STACK) - 2;
  *top = (void*)&enter;  // where the first switch returns to, the stack aligned as for a call
  fiber.stack_pointer = top - 6;
  std::memset(fiber.stack_pointer, 0, 6 * sizeof(void*));
  fiber.turn = nullptr;
  fiber.done = false;
}

inline bool ready(const Fiber& fiber) { return !fiber.done && (!fiber.turn || *fiber.turn != fiber.seen); }

inline void resume(unsigned thread) {
  now = &block->fibers[thread];
  now->turn = nullptr;
  threadIdx.x = thread;
#if defined(BS_HOST_RECORDED)
  bs_here = BsHere{block->index, thread, &block->meeting.turn, &block->syncs[thread / LANES], false};
#endif
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, now->stack, STACK);
#endif
  bs_host_switch(&scheduler, now->stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

inline void give_way() {  // lets others run
  if (schedule & 6) to_scheduler();
}

inline unsigned random_below(unsigned bound) {  // xorshift
  if (!bound) return random_state = 2654435769u * ((unsigned)schedule >> 4) + 1;  // seeds it
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state % bound;
}

// Tells the recorder that accesses are atomic from here on, or no longer.
inline __attribute__((always_inline)) void set_atomic([[maybe_unused]] bool atomic) {
#if defined(BS_HOST_RECORDED)
  asm volatile("" ::: "memory");
  bs_here.atomic = atomic;
  asm volatile("" ::: "memory");
#endif
}

// An operation that is one step for all other threads.
template <class Operation>
inline __attribute__((always_inline)) auto atomically(Operation operation) {
  give_way();
  set_atomic(true);
  const auto result = operation();
  set_atomic(false);
  return result;
}

// Waits for the others of a block or warp; returns the round of the meeting.
inline unsigned meet(Meeting& meeting, unsigned lane, std::uint64_t value) {
  const unsigned round = meeting.turn & 1u;
  meeting.values[round][lane] = value;
  if (++meeting.here == meeting.expected) {
    meeting.here = 0;
    ++meeting.turn;
  } else {
    now->turn = &meeting.turn;
    now->seen = meeting.turn;
    to_scheduler();
  }
  return round;
}

// Runs the lanes of one warp until all wait or are done; returns whether any ran.
inline bool run_warp(unsigned first, unsigned last) {
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (unsigned i = first; i < last; ++i) {
      const unsigned thread = schedule & 1 ? first + last - 1 - i : i;
      if (!ready(block->fibers[thread])) continue;
      resume(thread);
      any = moved = true;
    }
  }
  return any;
}

extern "C" char __start_bs_shared[] __attribute__((weak)), __stop_bs_shared[] __attribute__((weak));

inline std::size_t shared_bytes() { return __start_bs_shared ? (std::size_t)(__stop_bs_shared - __start_bs_shared) : 0; }

// Makes a block ready to run, its shared memory poisoned.
inline void begin_block(Block& own, unsigned index) {
  block = &own;
  own.index = blockIdx.x = index;
#if !defined(__SANITIZE_ADDRESS__)
  if (__start_bs_shared) std::memset(__start_bs_shared, 0xA5, shared_bytes());
#endif
  const unsigned threads = blockDim.x, warps = (threads + LANES - 1) / LANES;
  own.meeting = Meeting{};
  own.meeting.expected = threads;
  for (unsigned w = 0; w < warps; ++w) {
    own.syncs[w] = 0;
    own.warps[w] = Meeting{};
    own.warps[w].expected = threads - w * LANES < LANES ? threads - w * LANES : LANES;
  }
  for (unsigned i = 0; i < threads; ++i) prepare(own.fibers[i]);
}

inline bool ended(const Block& own) {
  for (unsigned i = 0; i < blockDim.x; ++i)
    if (!own.fibers[i].done) return false;
  return true;
}

// Runs a block until all its threads are done, or wait.
inline bool run_block() {
  const unsigned warps = (blockDim.x + LANES - 1) / LANES;
  for (bool moved = true; moved;) {
    moved = false;
    for (unsigned i = 0; i < warps; ++i) {
      const unsigned w = schedule & 1 ? warps - 1 - i : i;
      moved |= run_warp(w * LANES, w * LANES + block->warps[w].expected);
    }
  }
  return ended(*block);
}

inline void change_block(Block& next) {
  if (block == &next) return;
  if (block && __start_bs_shared) block->shared.assign(__start_bs_shared, __stop_bs_shared);
  block = &next;
  blockIdx.x = next.index;
  if (__start_bs_shared && !next.shared.empty()) std::memcpy(__start_bs_shared, next.shared.data(), shared_bytes());
}

// Runs a few threads of this block that are ready, chosen at random; returns whether there was one.
inline bool run_some() {
  bool any = false;
  for (unsigned left = 1 + random_below(2 * LANES); left > 0; --left) {
    const unsigned first = random_below(blockDim.x);
    unsigned i = 0;
    while (i < blockDim.x && !ready(block->fibers[(first + i) % blockDim.x])) ++i;
    if (i == blockDim.x) return any;
    resume((first + i) % blockDim.x);
    any = true;
  }
  return any;
}

// Blocks in random order, up to RESIDENT at once, each a few steps at a time. Returns as `launch` does.
inline long long run_interleaved(unsigned grid) {
  std::vector<unsigned> order(grid);
  for (unsigned b = 0; b < grid; ++b) order[b] = b;
  for (unsigned b = grid; b > 1; --b) std::swap(order[b - 1], order[random_below(b)]);
  std::vector<Block*> running;
  unsigned begun = 0;
  block = nullptr;
  for (; begun < grid && begun < RESIDENT; ++begun) {
    if (block) change_block(resident[begun]);
    begin_block(resident[begun], order[begun]);
    running.push_back(block);
  }
  unsigned idle = 0;  // turns in which the chosen block could not move
  while (!running.empty()) {
    const unsigned chosen = random_below((unsigned)running.size());
    change_block(*running[chosen]);
    idle = run_some() ? 0 : idle + 1;
    if (ended(*block)) {
      idle = 0;
      if (begun < grid)
        begin_block(*block, order[begun++]);
      else
        running.erase(running.begin() + chosen);
    } else if (idle > 64 * RESIDENT) {
      return 1ll + blockIdx.x;
    }
  }
  return 0;
}

// 0, or 1 + the block in which threads waited for others that never came.
inline long long launch(unsigned grid, unsigned threads, void* const* values, void (*kernel)(void* const*)) {
  const std::lock_guard<std::mutex> lock(one_launch);
  schedule = std::exchange(next_order, 0);
  gridDim.x = grid;
  blockDim.x = threads;
  body = kernel;
  arguments = values;
  random_below(0);
#if !defined(__SANITIZE_ADDRESS__)
  if (schedule & 4) return run_interleaved(grid);
#endif
  for (unsigned b = 0; b < grid; ++b) {
    begin_block(resident[0], schedule & 1 ? grid - 1 - b : b);
    if (!run_block()) return 1ll + blockIdx.x;
  }
  return 0;
}

template <class>
struct Call;
template <class... A>
struct Call<void (*)(A...)> {
  template <void (*kernel)(A...), std::size_t... i>
  static void with(void* const* values, std::index_sequence<i...>) {
    kernel(*(std::remove_const_t<A>*)values[i]...);
  }
  template <void (*kernel)(A...)>
  static void from(void* const* values) {
    with<kernel>(values, std::index_sequence_for<A...>{});
  }
};

inline Meeting& own_warp() { return block->warps[threadIdx.x / LANES]; }

template <class T>
std::uint64_t packed(T value) {
  static_assert(sizeof(T) <= 8, "a lane gives at most 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
T from_lane(T value, unsigned source) {
  Meeting& meeting = own_warp();
  const unsigned round = meet(meeting, threadIdx.x % LANES, packed(value));
  std::memcpy(&value, &meeting.values[round][source % LANES], sizeof(T));
  return value;
}

}  // namespace bs_host

#define BS_HOST_EXPORT(kernel)                                                                          \
  extern "C" long long bs_host_##kernel(unsigned grid, unsigned block, void* const* values) {           \
    return bs_host::launch(grid, block, values, &bs_host::Call<decltype(&kernel)>::from<&kernel>);      \
  }
extern "C" inline __attribute__((used)) void bs_host_schedule(int chosen) { bs_host::next_order = chosen; }
#if defined(BS_HOST_RECORDED)
extern "C" void bs_host_record(char*, char*, const std::uintptr_t*, const std::uintptr_t*, long long);
extern "C" inline __attribute__((used)) void bs_host_watch(const std::uintptr_t* firsts, const std::uintptr_t* sizes, long long count) {
  bs_host_record(bs_host::__start_bs_shared, bs_host::__stop_bs_shared, firsts, sizes, count);
}
extern "C" void bs_host_accessed() {
  if (bs_host::schedule & 8 && !bs_host::random_below(8)) bs_host::to_scheduler();
}
#endif

inline void __syncthreads() { bs_host::meet(bs_host::block->meeting, 0, 0); }
inline void __syncwarp(unsigned = ~0u) {
  bs_host::Meeting& meeting = bs_host::own_warp();
  if (meeting.here + 1 == meeting.expected) ++bs_host::block->syncs[threadIdx.x / 32];
  bs_host::meet(meeting, threadIdx.x % 32, 0);
}
inline void __threadfence() {}

template <class T>
T __shfl_sync(unsigned, T value, int source) {
  return bs_host::from_lane(value, (unsigned)source);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return bs_host::from_lane(value, threadIdx.x % 32 ^ (unsigned)mask);
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned apart) {
  const unsigned lane = threadIdx.x % 32;
  return bs_host::from_lane(value, lane < apart ? lane : lane - apart);
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  auto& meeting = bs_host::own_warp();
  const unsigned round = bs_host::meet(meeting, threadIdx.x % 32, vote);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < meeting.expected; ++lane) bits |= (unsigned)meeting.values[round][lane] << lane;
  return bits;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline double __longlong_as_double(long long bits) {
  double x;
  std::memcpy(&x, &bits, 8);
  return x;
}
inline long long __double_as_longlong(double x) { return (long long)bs_host::packed(x); }

// Whole words that other blocks may meet (device.h). Whoever reads one may be waiting for it, so others run first.
#define BS_EMULATED
template <class T>
inline __attribute__((always_inline)) T bs_load(const T* at) {
  return bs_host::atomically([=]() __attribute__((always_inline)) { return *at; });
}
template <class T>
inline __attribute__((always_inline)) void bs_store(T* at, T value) {
  bs_host::atomically([=]() __attribute__((always_inline)) { return *at = value; });
}

// What orders the accesses of two blocks (device.h).
inline void bs_released([[maybe_unused]] const void* word) {
#if defined(BS_HOST_RECORDED)
  bs_host_released(bs_host::block->index, word);
#endif
}
inline void bs_acquired([[maybe_unused]] const void* word) {
#if defined(BS_HOST_RECORDED)
  bs_host_acquired(bs_host::block->index, word);
#endif
}

#define BS_HOST_ATOMIC(name, changed)                                            \
  template <class T, class V>                                                    \
  inline __attribute__((always_inline)) T name(T* at, V value) {                 \
    return bs_host::atomically([=]() __attribute__((always_inline)) {            \
      const T before = *at;                                                      \
      *at = (T)(changed);                                                        \
      return before;                                                             \
    });                                                                          \
  }
BS_HOST_ATOMIC(atomicAdd, before + (T)value)
BS_HOST_ATOMIC(atomicOr, before | (T)value)
BS_HOST_ATOMIC(atomicMin, (T)value < before ? (T)value : before)
template <class T, class V, class W>
inline __attribute__((always_inline)) T atomicCAS(T* at, V expected, W value) {
  return bs_host::atomically([=]() __attribute__((always_inline)) {
    const T before = *at;
    if (before == (T)expected) *at = (T)value;
    return before;
  });
}

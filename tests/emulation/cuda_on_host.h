// CUDA's words for g++: compiles a .cu file into host code that runs each block's threads as fibers of one host thread.
// For tests alone. It gives barriers, shuffles, ballots and atomics their meaning and refuses what a device would leave
// undefined: a barrier or a warp-wide call that some thread never reaches. Blocks run one after the other.
//
// `bs_host_schedule(s)` chooses the order: bit 0 runs threads and blocks backwards, bit 1 lets others run at every atomic.
// A result that depends on it is a race.
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

static Fiber fibers[MOST], *now = nullptr;
static Meeting block_meeting, warp_meetings[MOST / LANES];
static void* scheduler = nullptr;
static void (*body)(void* const*) = nullptr;
static void* const* arguments = nullptr;
static int schedule = 0;
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
  now = &fibers[thread];
  now->turn = nullptr;
  threadIdx.x = thread;
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
  if (schedule & 2) to_scheduler();
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
      if (!ready(fibers[thread])) continue;
      resume(thread);
      any = moved = true;
    }
  }
  return any;
}

extern "C" char __start_bs_shared[] __attribute__((weak)), __stop_bs_shared[] __attribute__((weak));

inline bool run_block() {
#if !defined(__SANITIZE_ADDRESS__)
  if (__start_bs_shared) std::memset(__start_bs_shared, 0xA5, (std::size_t)(__stop_bs_shared - __start_bs_shared));
#endif
  const unsigned threads = blockDim.x, warps = (threads + LANES - 1) / LANES;
  block_meeting = Meeting{};
  block_meeting.expected = threads;
  for (unsigned w = 0; w < warps; ++w) {
    warp_meetings[w] = Meeting{};
    warp_meetings[w].expected = threads - w * LANES < LANES ? threads - w * LANES : LANES;
  }
  for (unsigned i = 0; i < threads; ++i) prepare(fibers[i]);
  for (bool moved = true; moved;) {
    moved = false;
    for (unsigned i = 0; i < warps; ++i) {
      const unsigned w = schedule & 1 ? warps - 1 - i : i;
      moved |= run_warp(w * LANES, w * LANES + warp_meetings[w].expected);
    }
  }
  for (unsigned i = 0; i < threads; ++i)
    if (!fibers[i].done) return false;
  return true;
}

// 0, or 1 + the block in which threads waited for others that never came.
inline long long launch(unsigned grid, unsigned block, void* const* values, void (*kernel)(void* const*)) {
  const std::lock_guard<std::mutex> lock(one_launch);
  gridDim.x = grid;
  blockDim.x = block;
  body = kernel;
  arguments = values;
  for (unsigned b = 0; b < grid; ++b) {
    blockIdx.x = schedule & 1 ? grid - 1 - b : b;
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

inline Meeting& own_warp() { return warp_meetings[threadIdx.x / LANES]; }

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
extern "C" inline __attribute__((used)) void bs_host_schedule(int chosen) { bs_host::schedule = chosen; }

inline void __syncthreads() { bs_host::meet(bs_host::block_meeting, 0, 0); }
inline void __syncwarp(unsigned = ~0u) { bs_host::meet(bs_host::own_warp(), threadIdx.x % 32, 0); }
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

template <class T, class V>
T atomicAdd(T* at, V value) {
  bs_host::give_way();
  return std::exchange(*at, (T)(*at + (T)value));
}
template <class T, class V>
T atomicOr(T* at, V value) {
  bs_host::give_way();
  return std::exchange(*at, (T)(*at | (T)value));
}
template <class T, class V>
T atomicMin(T* at, V value) {
  bs_host::give_way();
  return std::exchange(*at, (T)value < *at ? (T)value : *at);
}
template <class T, class V, class W>
T atomicCAS(T* at, V expected, W value) {
  bs_host::give_way();
  const T before = *at;
  if (before == (T)expected) *at = (T)value;
  return before;
}

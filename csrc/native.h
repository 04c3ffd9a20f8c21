// Shared by the native kernels: array types that refuse a silent conversion, and loops over blocks of rows.
#pragma once
#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "host_device.h"

namespace py = pybind11;

template <class T>
using In = py::array_t<T, py::array::c_style>;  // bound with .noconvert(): a wrong dtype raises TypeError

// One clone per x86-64 level, picked when the library is loaded: a portable build that still vectorises. ThreadSanitizer is not ready yet
// when they are picked.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__) && !defined(__SANITIZE_THREAD__)
#define BS_HAS_CLONES
#define BS_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BS_CLONES
#endif

// True on the thread that a fork left over. OpenMP still believes in the team that this thread had before, and would wait for it
// for ever. Threads that start after the fork get teams of their own.
inline thread_local bool has_lost_its_team = false;

inline void notice_forks() {
#if defined(__unix__) || defined(__APPLE__)
  pthread_atfork(nullptr, nullptr, [] { has_lost_its_team = true; });
#endif
}

// Calls work(0) .. work(threads - 1): the first on this thread, the others on new threads, or not at all if the system gives no more.
// Work must be shared so that fewer threads do all of it, and must not throw.
template <class Work>
void on_threads(int threads, Work work) {
  std::vector<std::thread> others;
  try {
    for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
  } catch (const std::exception&) {
  }
  work(0);
  for (std::thread& other : others) other.join();
}

// Calls work(first, last) for blocks of at most `grain` of the indices 0 .. n - 1, each block by one thread. A work of three arguments
// also gets the place of its thread, below `threads`. Blocks are handed out as threads become free, so results must not depend on which
// thread runs one. An exception (out of memory) ends the loop and is thrown to the caller.
template <class Work>
void for_blocks(bs_i64 n, bs_i64 grain, int threads, Work work) {
  const bs_i64 blocks = (n + grain - 1) / grain;
  const int team = (int)std::min<bs_i64>(std::max(threads, 1), blocks);
  std::atomic<bs_i64> next{0};
  std::exception_ptr failure;
  std::mutex failing;
  auto run = [&](int place) {
    try {
      for (bs_i64 b; (b = next++) < blocks;) {
        if constexpr (std::is_invocable_v<Work, bs_i64, bs_i64, int>)
          work(b * grain, std::min(n, (b + 1) * grain), place);
        else
          work(b * grain, std::min(n, (b + 1) * grain));
      }
    } catch (...) {
      std::lock_guard<std::mutex> guard(failing);
      failure = std::current_exception();
      next = blocks;
    }
  };
#if defined(_OPENMP)
  if (team > 1 && !has_lost_its_team) {
#pragma omp parallel num_threads(team)
    run(omp_get_thread_num());
  } else
#endif
    on_threads(team, run);
  if (failure) std::rethrow_exception(failure);
}

// Counts become row pointers, in place: pointers[0] = 0, pointers[i + 1] holds row i's count on entry.
inline void counts_to_pointers(bs_i64* pointers, bs_i64 rows) {
  for (bs_i64 i = 0; i < rows; ++i) pointers[i + 1] += pointers[i];
}

void bind_draws(py::module_& m);
void bind_relations(py::module_& m);
void bind_trees(py::module_& m);
void bind_layers(py::module_& m);
void bind_matrices(py::module_& m);
void bind_aggregation(py::module_& m);
void bind_epilogue(py::module_& m);
void bind_quantiser(py::module_& m);
void bind_partition(py::module_& m);
void bind_launches(py::module_& m);
void bind_allocator(py::module_& m);

// Shared by the native kernels: array types that refuse a silent conversion, and loops over blocks of rows.
#pragma once
#include <omp.h>
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

#include "host_device.h"

namespace py = pybind11;

template <class T>
using In = py::array_t<T, py::array::c_style>;  // bound with .noconvert(): a wrong dtype raises TypeError

// One clone per x86-64 level, picked when the library is loaded: a portable build that still vectorises.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
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

// Calls work(first, last) for blocks of at most `grain` of the indices 0 .. n - 1, each block by one thread.
// Blocks are handed out as threads become free, so results must not depend on which thread runs one.
// An exception (out of memory) ends the loop and is thrown to the caller.
template <class Work>
void for_blocks(bs_i64 n, bs_i64 grain, int threads, Work work) {
  const bs_i64 blocks = (n + grain - 1) / grain;
  const int team = (int)std::min<bs_i64>(std::max(threads, 1), blocks);
  std::atomic<bs_i64> next{0};
  std::exception_ptr failure;
  auto run = [&] {
    try {
      for (bs_i64 b; (b = next++) < blocks;) work(b * grain, std::min(n, (b + 1) * grain));
    } catch (...) {
#pragma omp critical(bs_failure)
      failure = std::current_exception();
      next = blocks;
    }
  };
  auto run_by_team = [&] {
#pragma omp parallel num_threads(team)
    run();
  };
  if (team <= 1)
    run();
  else if (has_lost_its_team)
    std::thread(run_by_team).join();
  else
    run_by_team();
  if (failure) std::rethrow_exception(failure);
}

// Counts become row pointers, in place: pointers[0] = 0, pointers[i + 1] holds row i's count on entry.
inline void counts_to_pointers(bs_i64* pointers, bs_i64 rows) {
  for (bs_i64 i = 0; i < rows; ++i) pointers[i + 1] += pointers[i];
}

void bind_draws(py::module_& m);
void bind_hops(py::module_& m);
void bind_layers(py::module_& m);
void bind_matrices(py::module_& m);
void bind_aggregation(py::module_& m);
void bind_quantiser(py::module_& m);

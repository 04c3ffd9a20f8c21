// bulksample._native: the CPU back end, and one call that enqueues a bulk on a GPU. Each kernel walks over rows with threads, the GIL released; the *_row.h headers, which the CUDA
// kernels include too, decide what happens in a row.
#include "native.h"

#ifndef BULKSAMPLE_SOURCES  // a digest of these files, which setup.py gives; empty in a build by hand
#define BULKSAMPLE_SOURCES ""
#endif

PYBIND11_MODULE(_native, m) {
  m.attr("sources") = BULKSAMPLE_SOURCES;
  notice_forks();
  bind_draws(m);
  bind_relations(m);
  bind_trees(m);
  bind_layers(m);
  bind_matrices(m);
  bind_aggregation(m);
  bind_epilogue(m);
  bind_quantiser(m);
  bind_partition(m);
  bind_launches(m);
  bind_allocator(m);
}

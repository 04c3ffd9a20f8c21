// Aggregation over a block: sparse times dense, and the transposed block that its gradient needs.
// A row is summed by one thread in the order of its edges, so training repeats to the bit.
#include "native.h"

namespace {

BS_CLONES void sum_rows(const bs_i64* indptr, const bs_i32* indices, const float* weights, const float* x, bs_i64 f, float* out, bs_i64 b,
                        bs_i64 e) {
  for (bs_i64 r = b; r < e; ++r) {
    float* sum = out + r * f;
    for (bs_i64 j = 0; j < f; ++j) sum[j] = 0.0f;
    for (bs_i64 i = indptr[r]; i < indptr[r + 1]; ++i) {
      if (i + 8 < indptr[e]) {
        const char* ahead = (const char*)(x + (bs_i64)indices[i + 8] * f);
        for (bs_i64 byte = 0; byte < 4 * f && byte < 512; byte += 64) __builtin_prefetch(ahead + byte);
      }
      const float* row = x + (bs_i64)indices[i] * f;
      const float w = weights ? weights[i] : 1.0f;
      for (bs_i64 j = 0; j < f; ++j) sum[j] += w * row[j];
    }
  }
}

py::array_t<float> spmm(In<bs_i64> indptr, In<bs_i32> indices, std::optional<In<float>> weights, In<float> x, int threads) {
  if (x.ndim() != 2) throw py::value_error("x must have two dimensions");
  const bs_i64 rows = indptr.size() - 1, f = x.shape(1);
  py::array_t<float> out({rows, f});
  const bs_i64* p = indptr.data();
  const bs_i32* c = indices.data();
  const float *w = weights ? weights->data() : nullptr, *in = x.data();
  float* y = out.mutable_data();
  py::gil_scoped_release nogil;
  for_blocks(rows, 256, threads, [&](bs_i64 b, bs_i64 e) { sum_rows(p, c, w, in, f, y, b, e); });
  return out;
}

py::tuple transpose(In<bs_i64> indptr, In<bs_i32> indices, std::optional<In<float>> weights, bs_i64 columns) {
  const bs_i64 rows = indptr.size() - 1, edges = indices.size();
  const bs_i64* p = indptr.data();
  const bs_i32* c = indices.data();
  py::array_t<bs_i64> out_pointers(columns + 1);
  py::array_t<bs_i32> out_indices(edges);
  py::object out_weights = py::none();
  const float* w = weights ? weights->data() : nullptr;
  float* v = nullptr;
  if (w) {
    py::array_t<float> array(edges);
    v = array.mutable_data();
    out_weights = array;
  }
  bs_i64* ends = out_pointers.mutable_data();
  bs_i32* o = out_indices.mutable_data();
  {
    py::gil_scoped_release nogil;
    std::fill(ends, ends + columns + 1, 0);
    for (bs_i64 i = 0; i < edges; ++i) ++ends[c[i] + 1];
    counts_to_pointers(ends, columns);
    std::vector<bs_i64> next(ends, ends + columns);
    for (bs_i64 r = 0; r < rows; ++r)
      for (bs_i64 i = p[r]; i < p[r + 1]; ++i) {
        const bs_i64 at = next[c[i]]++;
        o[at] = (bs_i32)r;
        if (v) v[at] = w[i];
      }
  }
  return py::make_tuple(out_pointers, out_indices, out_weights);
}

}  // namespace

void bind_aggregation(py::module_& m) {
  m.def("spmm", &spmm, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("weights").noconvert(),
        py::arg("x").noconvert(), py::arg("threads"));
  m.def("transpose", &transpose, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("weights").noconvert(),
        py::arg("columns"));
}

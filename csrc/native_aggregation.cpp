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

// Storage types of a dense matrix.
enum Stored { SINGLE = 0, HALF = 1, BFLOAT = 2 };

inline float from_bits(bs_u32 bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// Converts an IEEE half exactly: a product shifts its exponent, which is right for subnormal numbers too.
inline float half_to_single(bs_u32 half) {
  const bs_u32 sign = (half & 0x8000u) << 16, special = (half & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0u;
  bs_u32 bits;
  const float scaled = from_bits((half & 0x7FFFu) << 13) * 0x1p112f;
  __builtin_memcpy(&bits, &scaled, 4);
  return from_bits(bits | sign | special);
}

template <class T>
BS_CLONES void take_rows(const T* x, int stored, const bs_i32* rows, const float* scale, bs_i64 f, float* out, bs_i64 b, bs_i64 e) {
  constexpr bs_i64 AHEAD = 6;
  for (bs_i64 r = b; r < e; ++r) {
    const char* ahead = (const char*)(x + (bs_i64)rows[std::min(r + AHEAD, e - 1)] * f);
    for (bs_i64 byte = 0; byte < (bs_i64)sizeof(T) * f && byte < 1024; byte += 64) __builtin_prefetch(ahead + byte);
    const T* from = x + (bs_i64)rows[r] * f;
    float* to = out + r * f;
    if constexpr (sizeof(T) == 4) {
      for (bs_i64 j = 0; j < f; ++j) to[j] = from[j];
    } else if (stored == HALF) {
      for (bs_i64 j = 0; j < f; ++j) to[j] = half_to_single(from[j]);
    } else {
      for (bs_i64 j = 0; j < f; ++j) to[j] = from_bits((bs_u32)from[j] << 16);
    }
    if (scale)
      for (bs_i64 j = 0; j < f; ++j) to[j] *= scale[rows[r]];
  }
}

template <class T>
void take_all(const In<T>& x, int stored, const In<bs_i32>& rows, const std::optional<In<float>>& scale, In<float>& out, int threads) {
  if (x.ndim() != 2 || out.ndim() != 2 || out.shape(0) != rows.size() || out.shape(1) != x.shape(1))
    throw py::value_error("out must have a row of the width of x for each row taken");
  const bs_i64 f = x.shape(1);
  const T* from = x.data();
  const bs_i32* r = rows.data();
  const float* s = scale ? scale->data() : nullptr;
  float* to = out.mutable_data();
  py::gil_scoped_release nogil;
  for_blocks(rows.size(), 1024, threads, [&](bs_i64 b, bs_i64 e) { take_rows(from, stored, r, s, f, to, b, e); });
}

// Gathers rows of x into `out` as float32; x holds float32, or the bits of a narrower type.
void gather(py::array x, int stored, In<bs_i32> rows, std::optional<In<float>> scale, In<float> out, int threads) {
  if (stored == SINGLE)
    take_all(py::cast<In<float>>(x), stored, rows, scale, out, threads);
  else
    take_all(py::cast<In<std::uint16_t>>(x), stored, rows, scale, out, threads);
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
  m.def("gather", &gather, py::arg("x"), py::arg("stored"), py::arg("rows").noconvert(), py::arg("scale").noconvert(),
        py::arg("out").noconvert(), py::arg("threads"));
  m.def("transpose", &transpose, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("weights").noconvert(),
        py::arg("columns"));
}

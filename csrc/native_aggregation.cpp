// Aggregation over a block: sparse times dense, and the transposed block that its gradient needs.
// A row is summed by one thread in the order of its edges, so training repeats to the bit.
#include "native.h"

namespace {

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

template <int STORED>
using Number = std::conditional_t<STORED == SINGLE, float, std::uint16_t>;

template <int STORED>
BS_INLINE float single(Number<STORED> number) {
  if constexpr (STORED == SINGLE) return number;
  if constexpr (STORED == HALF) return half_to_single(number);
  if constexpr (STORED == BFLOAT) return from_bits((bs_u32)number << 16);
}

// Asks for a row that is read a few rows later.
template <class T>
BS_INLINE void ask_for(const T* row, bs_i64 f) {
  for (bs_i64 byte = 0; byte < (bs_i64)sizeof(T) * f && byte < 1024; byte += 64) __builtin_prefetch((const char*)row + byte);
}

// Writes rows b to e - 1 of those named, as float32; the names go on to `end`.
template <int STORED>
BS_CLONES void take_rows(const Number<STORED>* x, const bs_i32* rows, const float* scale, bs_i64 f, float* out, bs_i64 b, bs_i64 e,
                         bs_i64 end) {
  constexpr bs_i64 AHEAD = 6;
  for (bs_i64 r = b; r < e; ++r) {
    if (r + AHEAD < end) ask_for(x + (bs_i64)rows[r + AHEAD] * f, f);
    if (scale && r + 2 * AHEAD < end) __builtin_prefetch(scale + rows[r + 2 * AHEAD]);
    const Number<STORED>* from = x + (bs_i64)rows[r] * f;
    float* to = out + (r - b) * f;
    if (scale) {
      const float factor = scale[rows[r]];
      for (bs_i64 j = 0; j < f; ++j) to[j] = single<STORED>(from[j]) * factor;
    } else {
      for (bs_i64 j = 0; j < f; ++j) to[j] = single<STORED>(from[j]);
    }
  }
}

// One over the number of entries, in float32; 1 for an empty row.
BS_INLINE float share_of(bs_i64 entries) { return entries ? (float)(1.0 / (double)entries) : 1.0f; }

BS_INLINE void scale_row(float* row, float factor, bs_i64 f) {
  for (bs_i64 j = 0; j < f; ++j) row[j] *= factor;
}

// Sums rows, or averages them.
template <int STORED>
BS_CLONES void sum_rows(const bs_i64* indptr, const bs_i32* indices, const float* weights, const Number<STORED>* x, bs_i64 f, bool mean,
                        float* out, bs_i64 b, bs_i64 e) {
  constexpr bs_i64 AHEAD = 8;
  for (bs_i64 r = b; r < e; ++r) {
    float* sum = out + r * f;
    for (bs_i64 j = 0; j < f; ++j) sum[j] = 0.0f;
    for (bs_i64 i = indptr[r]; i < indptr[r + 1]; ++i) {
      if (i + AHEAD < indptr[e]) ask_for(x + (bs_i64)indices[i + AHEAD] * f, f);
      const Number<STORED>* row = x + (bs_i64)indices[i] * f;
      const float w = weights ? weights[i] : 1.0f;
      for (bs_i64 j = 0; j < f; ++j) sum[j] += w * single<STORED>(row[j]);
    }
    if (mean) scale_row(sum, share_of(indptr[r + 1] - indptr[r]), f);
  }
}

BS_CLONES void add_rows(const float* rows, const float* weights, bs_i64 count, bs_i64 f, float* sum) {
  for (bs_i64 i = 0; i < count; ++i) {
    const float w = weights ? weights[i] : 1.0f;
    for (bs_i64 j = 0; j < f; ++j) sum[j] += w * rows[i * f + j];
  }
}

// Sums rows that have factors. Some at a time are multiplied by these in memory that the cache holds, and added there, since a compiler may
// round a product and its sum once, and the bits are to be those of rows that were gathered first.
template <int STORED>
void sum_scaled(const bs_i64* indptr, const bs_i32* indices, const float* weights, const Number<STORED>* x, const float* scale, bs_i64 f,
                bool mean, float* out, bs_i64 b, bs_i64 e) {
  constexpr bs_i64 TOGETHER = 32;
  std::vector<float> taken((std::size_t)(TOGETHER * f));
  bs_i64 from = indptr[b], to = from;  // the entries whose rows were taken
  for (bs_i64 r = b; r < e; ++r) {
    const bs_i64 first = indptr[r], last = indptr[r + 1];
    float* sum = out + r * f;
    std::fill(sum, sum + f, 0.0f);
    for (bs_i64 i = first; i < last; i = std::min(to, last)) {
      if (i == to) {
        from = to, to = std::min(to + TOGETHER, indptr[e]);
        take_rows<STORED>(x, indices, scale, f, taken.data(), from, to, indptr[e]);
      }
      add_rows(taken.data() + (i - from) * f, weights ? weights + i : nullptr, std::min(to, last) - i, f, sum);
    }
    if (mean) scale_row(sum, share_of(last - first), f);
  }
}

// Calls work(number of a storage type) as a constant.
template <class Work>
auto for_type(int stored, Work work) {
  if (stored == HALF) return work(std::integral_constant<int, HALF>{});
  if (stored == BFLOAT) return work(std::integral_constant<int, BFLOAT>{});
  return work(std::integral_constant<int, SINGLE>{});
}

// Multiplies a sparse matrix by a dense one, of float32 or of the bits of a narrower type; sums are float32, in `into` or a new array.
py::array_t<float> spmm(In<bs_i64> indptr, In<bs_i32> indices, std::optional<In<float>> weights, py::array x, int stored,
                        std::optional<In<float>> scale, bool mean, std::optional<In<float>> into, int threads) {
  if (x.ndim() != 2) throw py::value_error("x must have two dimensions");
  const bs_i64 rows = indptr.size() - 1, f = x.shape(1);
  if (into && (into->ndim() != 2 || into->shape(0) != rows || into->shape(1) != f)) throw py::value_error("out must have the shape of A X");
  py::array_t<float> out = into ? py::array_t<float>(*into) : py::array_t<float>({rows, f});
  const bs_i64* p = indptr.data();
  const bs_i32* c = indices.data();
  const float *w = weights ? weights->data() : nullptr, *s = scale ? scale->data() : nullptr;
  float* y = out.mutable_data();
  for_type(stored, [&](auto type) {
    const In<Number<type.value>> held = py::cast<In<Number<type.value>>>(x);
    const Number<type.value>* in = held.data();
    py::gil_scoped_release nogil;
    for_blocks(rows, 256, threads, [&](bs_i64 b, bs_i64 e) {
      if (s)
        sum_scaled<type.value>(p, c, w, in, s, f, mean, y, b, e);
      else
        sum_rows<type.value>(p, c, w, in, f, mean, y, b, e);
    });
  });
  return out;
}

// Gathers rows of x into `out` as float32; x holds float32, or the bits of a narrower type.
void gather(py::array x, int stored, In<bs_i32> rows, std::optional<In<float>> scale, In<float> out, int threads) {
  if (x.ndim() != 2 || out.ndim() != 2 || out.shape(0) != rows.size() || out.shape(1) != x.shape(1))
    throw py::value_error("out must have a row of the width of x for each row taken");
  const bs_i64 f = x.shape(1);
  const bs_i32* r = rows.data();
  const float* s = scale ? scale->data() : nullptr;
  float* to = out.mutable_data();
  for_type(stored, [&](auto type) {
    const In<Number<type.value>> held = py::cast<In<Number<type.value>>>(x);
    const Number<type.value>* from = held.data();
    const bs_i64 count = rows.size();
    py::gil_scoped_release nogil;
    for_blocks(count, 1024, threads, [&](bs_i64 b, bs_i64 e) { take_rows<type.value>(from, r, s, f, to + b * f, b, e, count); });
  });
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
  m.def("spmm", &spmm, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("weights").noconvert(), py::arg("x"),
        py::arg("stored"), py::arg("scale").noconvert(), py::arg("mean"), py::arg("into").noconvert(), py::arg("threads"));
  m.def("gather", &gather, py::arg("x"), py::arg("stored"), py::arg("rows").noconvert(), py::arg("scale").noconvert(),
        py::arg("out").noconvert(), py::arg("threads"));
  m.def("transpose", &transpose, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("weights").noconvert(),
        py::arg("columns"));
}

// What follows the products of a layer in one pass, y = dropout(act(z + b)), and its gradient. The random words of a tile of rows are made
// first, many blocks side by side; then the numbers of each row are masked, 16 bits a number.
#include "dropout_row.h"
#include "native_lanes.h"

namespace {

constexpr bs_i64 TILE = 512;      // blocks whose words are made at once, at most: 8 KiB
constexpr bs_i64 WORD_LANES = 8;  // blocks side by side; a tile is a multiple

// The varying words of the counters of a tile, and what is drawn by them: for each number of a block its half of a word.
struct Tile {
  bs_u32 index[TILE], vertex[TILE], tree[TILE];
  alignas(64) std::uint16_t halves[BS_DROPOUT_LANES * TILE];
};

// The halves of words as a row is masked by them.
BS_INLINE void write_halves(const BsWords& words, std::uint16_t* halves) {
  for (int lane = 0; lane < (int)BS_DROPOUT_LANES; ++lane) halves[lane] = (std::uint16_t)bs_dropout_half(words, lane);
}

#if defined(BS_HAS_CLONES)

#define BS_TILE_WORDS(LEVEL, LANES, VECTORS, VECTOR, PRODUCT)                                                                    \
  __attribute__((target(LEVEL))) void tile_words(bs_u64 key, bs_u32 minibatch, bs_i64 count, Tile& tile) {                       \
    constexpr int TOGETHER = VECTORS;                                                                                            \
    typedef bs_u64 Wide __attribute__((vector_size(8 * LANES)));                                                                 \
    typedef bs_u32 Narrow __attribute__((vector_size(4 * LANES)));                                                               \
    for (bs_i64 i = 0; i < count; i += LANES * TOGETHER) {                                                                       \
      Wide c0[TOGETHER], c1[TOGETHER], c2[TOGETHER], c3[TOGETHER];                                                               \
      BS_EACH {                                                                                                                  \
        Narrow index, vertex, tree;                                                                                              \
        __builtin_memcpy(&index, tile.index + i + w * LANES, sizeof index);                                                      \
        __builtin_memcpy(&vertex, tile.vertex + i + w * LANES, sizeof vertex);                                                   \
        __builtin_memcpy(&tree, tile.tree + i + w * LANES, sizeof tree);                                                         \
        c0[w] = __builtin_convertvector(index, Wide), c1[w] = __builtin_convertvector(vertex, Wide);                             \
        c2[w] = Wide{} + minibatch, c3[w] = __builtin_convertvector(tree, Wide);                                                 \
      }                                                                                                                          \
      BS_PHILOX_ROUNDS(key, VECTOR, PRODUCT)                                                                                     \
      BS_EACH {                                                                                                                  \
        const Wide low = (c0[w] & 0xFFFFFFFFu) | (c1[w] << 32), high = (c2[w] & 0xFFFFFFFFu) | (c3[w] << 32);                    \
        for (int l = 0; l < LANES; ++l) {                                                                                        \
          const bs_u64 both[] = {low[l], high[l]};  /* x86 stores the lower half first */                                        \
          __builtin_memcpy(tile.halves + BS_DROPOUT_LANES * (i + w * LANES + l), both, sizeof both);                             \
        }                                                                                                                        \
      }                                                                                                                          \
    }                                                                                                                            \
  }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // the operand of _mm512_mul_epu32 whose mask leaves it out
BS_TILE_WORDS("arch=x86-64-v4", 8, 1, __m512i, _mm512_mul_epu32)
#pragma GCC diagnostic pop
BS_TILE_WORDS("arch=x86-64-v3", 4, 2, __m256i, _mm256_mul_epu32)
BS_TILE_WORDS("default", 2, 2, __m128i, _mm_mul_epu32)

#else

void tile_words(bs_u64 key, bs_u32 minibatch, bs_i64 count, Tile& tile) {
  for (bs_i64 i = 0; i < count; ++i) {
    const BsWords counter{{tile.index[i], tile.vertex[i], minibatch, tile.tree[i]}};
    write_halves(bs_philox(counter, (bs_u32)key, (bs_u32)(key >> 32)), tile.halves + BS_DROPOUT_LANES * i);
  }
}

#endif

struct Row {
  const float* in;
  const float* bias;            // may be null
  float* out;
  const std::uint16_t* halves;  // null: nothing is dropped
  bs_u32 kept;
  float scale;
};

template <bool RELU, bool BIAS, bool MASK>
BS_CLONES void write_row(const Row& row, bs_i64 f) {
  const std::uint16_t* halves = row.halves;
  const bs_u32 kept = row.kept;
  const float scale = row.scale;
  const float *in = row.in, *bias = row.bias;
  float* out = row.out;
  for (bs_i64 j = 0; j < f; ++j) {
    float x = in[j];
    if constexpr (BIAS) x += bias[j];
    if constexpr (RELU) x = bs_relu(x);
    if constexpr (MASK) {
      x *= scale;
      out[j] = halves[j] < kept ? x : 0.0f;
    } else {
      out[j] = x;
    }
  }
}

template <bool RELU, bool BIAS>
void write_row(const Row& row, bs_i64 f) {
  if (row.halves)
    write_row<RELU, BIAS, true>(row, f);
  else
    write_row<RELU, BIAS, false>(row, f);
}

void mask_row(const Row& row, bool relu, bs_i64 f) {
  if (relu)
    row.bias ? write_row<true, true>(row, f) : write_row<true, false>(row, f);
  else
    row.bias ? write_row<false, true>(row, f) : write_row<false, false>(row, f);
}

BS_CLONES void add_row(const float* row, bs_i64 f, float* sums) {
  for (bs_i64 j = 0; j < f; ++j) sums[j] += row[j];
}

// dz of a row after relu: where y is positive, or not a number. Adds it to `sums`, unless they are null.
BS_CLONES void pass_row(const float* grad, const float* y, float scale, bs_i64 f, float* out, float* sums) {
  if (sums) {
    for (bs_i64 j = 0; j < f; ++j) {
      const float scaled = grad[j] * scale, passed = y[j] <= 0.0f ? 0.0f : scaled;
      out[j] = passed;
      sums[j] += passed;
    }
  } else {
    for (bs_i64 j = 0; j < f; ++j) {
      const float scaled = grad[j] * scale;
      out[j] = y[j] <= 0.0f ? 0.0f : scaled;
    }
  }
}

// Calls visit(row, its halves) for rows b .. e - 1 of width f.
template <class Visit>
void over_rows(const BsMask& mask, bs_i64 f, bs_i64 b, bs_i64 e, Visit visit) {
  const bs_i64 blocks = (f + BS_DROPOUT_LANES - 1) / BS_DROPOUT_LANES;
  if (!mask.vertices) {
    for (bs_i64 r = b; r < e; ++r) visit(r, nullptr);
    return;
  }
  if (blocks > TILE) {  // a row of its own, piece by piece
    std::vector<std::uint16_t> halves(BS_DROPOUT_LANES * blocks);
    for (bs_i64 r = b; r < e; ++r) {
      for (bs_i64 i = 0; i < blocks; ++i) write_halves(bs_dropout_words(mask, r, i), halves.data() + BS_DROPOUT_LANES * i);
      visit(r, halves.data());
    }
    return;
  }
  static thread_local Tile tile;
  const bs_i64 together = std::max<bs_i64>(1, TILE / std::max<bs_i64>(blocks, 1));
  for (bs_i64 first = b; first < e; first += together) {
    const bs_i64 last = std::min(e, first + together);
    bs_i64 at = 0;
    for (bs_i64 r = first; r < last; ++r) {
      const bs_u32 vertex = (bs_u32)mask.vertices[r], tree = mask.trees ? (bs_u32)mask.trees[r] : 0u;
      for (bs_i64 i = 0; i < blocks; ++i, ++at) tile.index[at] = (bs_u32)i, tile.vertex[at] = vertex, tile.tree[at] = tree;
    }
    for (; at % WORD_LANES; ++at) tile.index[at] = tile.vertex[at] = tile.tree[at] = 0;
    tile_words(mask.key, mask.minibatch, at, tile);
    for (bs_i64 r = first; r < last; ++r) visit(r, tile.halves + BS_DROPOUT_LANES * (r - first) * blocks);
  }
}

BsMask mask_from(bs_u64 key, bs_u64 minibatch, const std::optional<In<bs_i32>>& vertices, const std::optional<In<bs_i32>>& trees,
                 bs_u32 kept, bs_i64 rows) {
  if (kept < 1 || kept > BS_DROPOUT_PARTS) throw py::value_error("kept must be 1 to 65536");
  if ((vertices && vertices->size() < rows) || (trees && trees->size() < rows)) throw py::value_error("each row needs a vertex");
  return BsMask{key, (bs_u32)minibatch, kept, vertices ? vertices->data() : nullptr, trees ? trees->data() : nullptr};
}

void check_shape(const py::array& one, const py::array& other) {
  if (one.ndim() != 2 || other.ndim() != 2 || one.shape(0) != other.shape(0) || one.shape(1) != other.shape(1))
    throw py::value_error("arrays must have two dimensions, and be of one shape");
}

void epilogue(In<float> z, std::optional<In<float>> bias, bool relu, bs_u64 key, bs_u64 minibatch, std::optional<In<bs_i32>> vertices,
              std::optional<In<bs_i32>> trees, bs_u32 kept, In<float> out, int threads) {
  check_shape(z, out);
  const bs_i64 rows = z.shape(0), f = z.shape(1);
  if (bias && bias->size() != f) throw py::value_error("the bias needs a number for each column");
  const BsMask mask = mask_from(key, minibatch, vertices, trees, kept, rows);
  const float *in = z.data(), *b = bias ? bias->data() : nullptr, scale = mask.scale();
  float* y = out.mutable_data();
  py::gil_scoped_release nogil;
  for_blocks(rows, BS_BIAS_ROWS, threads, [&](bs_i64 first, bs_i64 last) {
    over_rows(mask, f, first, last,
              [&](bs_i64 r, const std::uint16_t* halves) { mask_row(Row{in + r * f, b, y + r * f, halves, kept, scale}, relu, f); });
  });
}

void epilogue_gradient(In<float> grad, std::optional<In<float>> y, bs_u64 key, bs_u64 minibatch, std::optional<In<bs_i32>> vertices,
                       std::optional<In<bs_i32>> trees, bs_u32 kept, In<float> out, std::optional<In<float>> bias, int threads) {
  check_shape(grad, out);
  if (y) check_shape(grad, *y);
  const bs_i64 rows = grad.shape(0), f = grad.shape(1), blocks = (rows + BS_BIAS_ROWS - 1) / BS_BIAS_ROWS;
  if (bias && bias->size() != f) throw py::value_error("the bias needs a number for each column");
  const BsMask mask = mask_from(key, minibatch, vertices, trees, kept, rows);
  const float *dy = grad.data(), *of = y ? y->data() : nullptr, scale = mask.scale();
  float *dz = out.mutable_data(), *db = bias ? bias->mutable_data() : nullptr;
  py::gil_scoped_release nogil;
  std::vector<float> sums(db ? blocks * f : 0);  // of the rows of each block
  for_blocks(rows, BS_BIAS_ROWS, threads, [&](bs_i64 first, bs_i64 last) {
    float* sum = db ? sums.data() + first / BS_BIAS_ROWS * f : nullptr;
    if (of) {
      for (bs_i64 r = first; r < last; ++r) pass_row(dy + r * f, of + r * f, scale, f, dz + r * f, sum);
    } else {
      over_rows(mask, f, first, last, [&](bs_i64 r, const std::uint16_t* halves) {
        mask_row(Row{dy + r * f, nullptr, dz + r * f, halves, kept, scale}, false, f);
        if (sum) add_row(dz + r * f, f, sum);
      });
    }
  });
  if (!db) return;
  for (bs_i64 j = 0; j < f; ++j) {
    double total = 0;
    for (bs_i64 i = 0; i < blocks; ++i) total += sums[i * f + j];
    db[j] = (float)total;
  }
}

// A block of words for each entry: entries of a sparse row are far apart.
py::array_t<float> drop_entries(In<bs_i64> indptr, In<bs_i32> indices, In<float> values, bs_u64 key, bs_u64 minibatch,
                                In<bs_i32> vertices, std::optional<In<bs_i32>> trees, bs_u32 kept, int threads) {
  const bs_i64 rows = indptr.size() - 1;
  const BsMask mask = mask_from(key, minibatch, vertices, trees, kept, rows);
  if (indptr.data()[rows] != indices.size() || values.size() != indices.size())
    throw py::value_error("the last row pointer must be the number of entries");
  const bs_i64* p = indptr.data();
  const bs_i32* c = indices.data();
  const float *v = values.data(), scale = mask.scale();
  py::array_t<float> out(indices.size());
  float* to = out.mutable_data();
  py::gil_scoped_release nogil;
  for_blocks(rows, 256, threads, [&](bs_i64 b, bs_i64 e) {
    for (bs_i64 r = b; r < e; ++r)
      for (bs_i64 i = p[r]; i < p[r + 1]; ++i) {
        const BsWords words = bs_dropout_words(mask, r, c[i] / BS_DROPOUT_LANES);
        to[i] = bs_dropout_half(words, c[i] % BS_DROPOUT_LANES) < kept ? v[i] * scale : 0.0f;
      }
  });
  return out;
}

}  // namespace

void bind_epilogue(py::module_& m) {
  m.def("epilogue", &epilogue, py::arg("z").noconvert(), py::arg("bias").noconvert(), py::arg("relu"), py::arg("key"), py::arg("minibatch"),
        py::arg("vertices").noconvert(), py::arg("trees").noconvert(), py::arg("kept"), py::arg("out").noconvert(), py::arg("threads"));
  m.def("epilogue_gradient", &epilogue_gradient, py::arg("grad").noconvert(), py::arg("y").noconvert(), py::arg("key"),
        py::arg("minibatch"), py::arg("vertices").noconvert(), py::arg("trees").noconvert(), py::arg("kept"), py::arg("out").noconvert(),
        py::arg("bias").noconvert(), py::arg("threads"));
  m.def("drop_entries", &drop_entries, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("values").noconvert(),
        py::arg("key"), py::arg("minibatch"), py::arg("vertices").noconvert(), py::arg("trees").noconvert(), py::arg("kept"),
        py::arg("threads"));
}

// Random words, node-wise draws and the s smallest keys: uniform_row.h and race_row.h decide the draws.
#include "native_windows.h"

BS_CLONES bool draw_lanes(const Drawing& d, const BsLanes& name, const BsLanes& minibatch, const BsLanes& degree, bs_u32 s,
                          const BsNetwork& network, BsLanes* picks) {
  return bs_draw_lanes(d.seed, d.tag, name, minibatch, degree, s, d.law == UNIFORM, network, picks);
}

// 2^32 of the 2^64 parts of 1 - u / 2^64, as fixed point of 57 bits and over ln 2; 3e-5 less, far beyond every rounding.
constexpr double PART = 0x1p25 * 1.44265;

BS_CLONES int promising(const BsStream& stream, const bs_i32* columns, const double* weights, int count, double bound, bs_u64* u,
                        bs_i32* which) {
  bs_u32 low[CHUNK], high[CHUNK], open[CHUNK];
  const int whole = count / GROUP * GROUP, padded = whole < count ? whole + GROUP : whole;
  two_words(stream, columns, whole, low, high);
  if (whole < count) {
    bs_i32 rest[GROUP] = {};
    std::copy_n(columns + whole, count - whole, rest);
    two_words(stream, rest, GROUP, low + whole, high + whole);
  }
  if (weights) {
    for (int i = 0; i < count; ++i) open[i] = !((double)(~high[i]) * PART > bound * weights[i]);
  } else {
    const bs_u32 most = bound / PART < 0x1p32 - 1 ? (bs_u32)(bound / PART) + 1 : 0xFFFFFFFFu;
    for (int i = 0; i < count; ++i) open[i] = ~high[i] <= most;
  }
  for (int i = count; i < padded; ++i) open[i] = 0;
  int kept = 0;
  for (int first = 0; first < padded; first += GROUP) {
    bs_u32 any = 0;
    for (int i = first; i < first + GROUP; ++i) any |= open[i];
    if (!any) continue;
    for (int i = first; i < std::min(first + GROUP, count); ++i) {
      which[kept] = i;
      u[kept] = (bs_u64)high[i] << 32 | low[i];
      kept += (int)open[i];
    }
  }
  return kept;
}

namespace {

constexpr bs_i64 BLOCK = 4096;  // rows handed to a thread at once

BS_CLONES void fill_words(bs_u64 seed, bs_u32 vertex, bs_u32 minibatch, bs_u32 tag, bs_u32 index, bs_i64 count, bs_u32* out) {
  const BsStream stream{seed, vertex, minibatch, tag};
  for (bs_i64 i = 0; i < count; ++i) {
    const BsWords words = bs_block(stream, index + (bs_u32)i);
    for (int j = 0; j < 4; ++j) out[4 * i + j] = words.v[j];
  }
}

py::array_t<bs_u32> random_words(bs_u64 seed, bs_u32 tag, bs_u64 first, bs_i64 count, bs_u32 vertex, bs_u32 minibatch, int threads) {
  py::array_t<bs_u32> out({count, (bs_i64)4});
  bs_u32* words = out.mutable_data();
  py::gil_scoped_release nogil;
  for_blocks(count, 1 << 14, threads, [&](bs_i64 b, bs_i64 e) {
    fill_words(seed, vertex, minibatch, tag, (bs_u32)(first + b), e - b, words + 4 * b);
  });
  return out;
}

// Hands out the minibatch id of row after row.
class MinibatchOf {
 public:
  MinibatchOf(const bs_i64* pointers, const bs_i64* minibatches, bs_i64 k, bs_i64 first)
      : pointers_(pointers), minibatches_(minibatches), at_(std::upper_bound(pointers, pointers + k + 1, first) - pointers - 1) {}
  bs_u32 operator()(bs_i64 row) {
    while (pointers_[at_ + 1] <= row) ++at_;
    return (bs_u32)minibatches_[at_];
  }

 private:
  const bs_i64 *pointers_, *minibatches_;
  bs_i64 at_;
};

// Blocks of rows draw into arrays of their own, which are then laid end to end: one pass over A.
py::tuple sample_rows(In<bs_i64> indptr, In<bs_i32> indices, std::optional<In<bs_i64>> values, In<bs_i32> vertices, In<bs_i32> names,
                      In<bs_i64> pointers, In<bs_i64> minibatches, bs_i64 fanout, int law, bs_u64 seed, bs_u32 tag, int threads) {
  const Drawing drawing{indptr.data(), indices.data(), values ? values->data() : nullptr, (Law)law, fanout, seed, tag};
  const bs_i64 rows = vertices.size(), k = minibatches.size(), blocks = (rows + BLOCK - 1) / BLOCK;
  const bs_i32 *vertex = vertices.data(), *name = names.data();
  const bs_i64 *part = pointers.data(), *id = minibatches.data();
  std::vector<Buffer<bs_i32>> drawn(blocks);
  py::array_t<bs_i64> out_pointers(rows + 1);
  bs_i64* out_ends = out_pointers.mutable_data();
  out_ends[0] = 0;
  {
    py::gil_scoped_release nogil;
    for_blocks(rows, BLOCK, threads, [&](bs_i64 b, bs_i64 e) {
      MinibatchOf minibatch(part, id, k, b);
      RowFlight flight(drawing);
      Buffer<bs_i64> ends;
      NoSink sink;
      auto vertex_of = [&](bs_i64 r) { return vertex[b + r]; };
      auto row = [&](bs_i64 r) { return Row{vertex[b + r], name[b + r], minibatch(b + r)}; };
      flight.run(e - b, vertex_of, row, drawn[b / BLOCK], ends, sink);
      std::copy_n(ends.data(), e - b, out_ends + 1 + b);
    });
    for (bs_i64 b = BLOCK; b < rows; b += BLOCK)
      for (bs_i64 r = b; r < std::min(rows, b + BLOCK); ++r) out_ends[r + 1] += out_ends[b];
  }
  py::array_t<bs_i32> columns(out_ends[rows]);
  bs_i32* out = columns.mutable_data();
  {
    py::gil_scoped_release nogil;
    for_blocks(blocks, 1, threads, [&](bs_i64 b, bs_i64) { std::copy_n(drawn[b].data(), drawn[b].size(), out + out_ends[b * BLOCK]); });
  }
  return py::make_tuple(out_pointers, columns);
}

struct DrawnBlock {
  Buffer<bs_i32> columns;
  Buffer<bs_i64> entries, ends;
};

// Rows of a relation, or windows of time in them; each row has its own word 2 of the counter.
py::tuple sample_relation(In<bs_i64> indptr, In<bs_i32> indices, std::optional<In<bs_i64>> values, std::optional<In<bs_i64>> timed, bool repeats,
                          In<bs_i32> vertices, In<bs_i32> names, In<bs_i64> minibatches, std::optional<In<bs_i64>> starts,
                          std::optional<In<bs_i64>> ends, bs_i64 fanout, int law, bs_u64 seed, bs_u32 tag, bool last, bool strict, int threads) {
  const Drawing drawing{indptr.data(), indices.data(), values ? values->data() : nullptr, (Law)law, fanout, seed, tag, repeats};
  const bool windows = timed && ends;
  const Times times{windows ? reinterpret_cast<const BsTimed*>(timed->data()) : nullptr, (bool)starts, strict, last};
  const bs_i64 rows = vertices.size(), blocks = (rows + BLOCK - 1) / BLOCK;
  const bs_i32 *vertex = vertices.data(), *name = names.data();
  const bs_i64 *id = minibatches.data(), *start = starts ? starts->data() : nullptr, *end = ends ? ends->data() : nullptr;
  std::vector<DrawnBlock> drawn(blocks);
  py::array_t<bs_i64> out_pointers(rows + 1);
  bs_i64* out_ends = out_pointers.mutable_data();
  std::fill_n(out_ends, rows + 1, 0);
  if (fanout != 0) {
    py::gil_scoped_release nogil;
    for_blocks(rows, BLOCK, threads, [&](bs_i64 b, bs_i64 e) {
      DrawnBlock& block = drawn[b / BLOCK];
      NoSink sink;
      auto vertex_of = [&](bs_i64 r) { return vertex[b + r]; };
      auto row = [&](bs_i64 r) { return Row{vertex[b + r], name[b + r], (bs_u32)id[b + r]}; };
      if (windows) {
        WindowFlight flight(drawing, times);
        auto timed_row = [&](bs_i64 r) { return TimedRow{row(r), start ? start[b + r] : 0, end[b + r]}; };
        flight.run(e - b, vertex_of, timed_row, block.columns, &block.entries, block.ends, sink);
      } else {
        RowFlight flight(drawing);
        flight.tell_entries(&block.entries);
        flight.run(e - b, vertex_of, row, block.columns, block.ends, sink);
      }
      std::copy_n(block.ends.data(), e - b, out_ends + 1 + b);
    });
    for (bs_i64 b = BLOCK; b < rows; b += BLOCK)
      for (bs_i64 r = b; r < std::min(rows, b + BLOCK); ++r) out_ends[r + 1] += out_ends[b];
  }
  if (blocks == 1) return py::make_tuple(out_pointers, drawn[0].columns.release(), drawn[0].entries.release());
  py::array_t<bs_i32> columns(out_ends[rows]);
  py::array_t<bs_i64> entries(out_ends[rows]);
  bs_i32* column = columns.mutable_data();
  bs_i64* entry = entries.mutable_data();
  {
    py::gil_scoped_release nogil;
    for_blocks(blocks, 1, threads, [&](bs_i64 b, bs_i64) {
      std::copy_n(drawn[b].columns.data(), drawn[b].columns.size(), column + out_ends[b * BLOCK]);
      std::copy_n(drawn[b].entries.data(), drawn[b].entries.size(), entry + out_ends[b * BLOCK]);
    });
  }
  return py::make_tuple(out_pointers, columns, entries);
}

// One row of candidates per minibatch, or one row that all share.
py::tuple smallest_keys(In<bs_i64> pointers, In<bs_i32> columns, In<double> weights, bs_i64 fanout, In<bs_i64> minibatches, bs_u64 seed,
                        bs_u32 tag, int threads) {
  const bs_i64 k = minibatches.size();
  const bool shared = pointers.size() == 2;
  const bs_i64* row_pointers = pointers.data();
  const bs_i32* column = columns.data();
  const double* weight = weights.data();
  const bs_i64* ids = minibatches.data();
  std::vector<std::vector<Race::Entry>> drawn(k);
  std::vector<double> tau(k, std::numeric_limits<double>::infinity());
  py::array_t<bs_i64> out_pointers(k + 1);
  bs_i64* ends = out_pointers.mutable_data();
  {
    py::gil_scoped_release nogil;
    ends[0] = 0;
    for_blocks(k, 1, threads, [&](bs_i64 j, bs_i64) {
      const bs_i64 b = row_pointers[shared ? 0 : j], e = row_pointers[shared ? 1 : j + 1];
      const BsStream stream{seed, 0, (bs_u32)ids[j], tag};
      const bs_i64 s = fanout < 0 ? e - b : fanout;
      Race race(s + 1);  // one more than is drawn: its key is tau
      race.scan(stream, column + b, weight + b, e - b);
      auto& kept = race.finish();
      if ((bs_i64)kept.size() > s) {
        const auto out = std::max_element(kept.begin(), kept.end(), Race::before);
        tau[j] = out->key;
        kept.erase(out);
      }
      std::sort(kept.begin(), kept.end(), Race::by_column);
      drawn[j] = std::move(kept);
      ends[j + 1] = (bs_i64)drawn[j].size();
    });
    counts_to_pointers(ends, k);
  }
  py::array_t<bs_i32> out_columns(ends[k]);
  py::array_t<double> inclusion(ends[k]);
  bs_i32* c = out_columns.mutable_data();
  double* p = inclusion.mutable_data();
  for (bs_i64 j = 0; j < k; ++j)
    for (const auto& entry : drawn[j]) {
      *c++ = entry.column;
      *p++ = bs_inclusion(weight[row_pointers[shared ? 0 : j] + entry.place], tau[j]);
    }
  return py::make_tuple(out_pointers, out_columns, inclusion);
}

}  // namespace

void bind_draws(py::module_& m) {
  m.def("random_words", &random_words, py::arg("seed"), py::arg("tag"), py::arg("first"), py::arg("count"), py::arg("vertex"),
        py::arg("minibatch"), py::arg("threads"));
  m.def("sample_rows", &sample_rows, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("values").noconvert(),
        py::arg("vertices").noconvert(), py::arg("names").noconvert(), py::arg("pointers").noconvert(),
        py::arg("minibatches").noconvert(), py::arg("fanout"), py::arg("law"), py::arg("seed"), py::arg("tag"), py::arg("threads"));
  m.def("sample_relation", &sample_relation, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("values").noconvert(),
        py::arg("timed").noconvert(), py::arg("repeats"), py::arg("vertices").noconvert(), py::arg("names").noconvert(),
        py::arg("minibatches").noconvert(), py::arg("starts").noconvert(), py::arg("ends").noconvert(), py::arg("fanout"), py::arg("law"),
        py::arg("seed"), py::arg("tag"), py::arg("last"), py::arg("strict"), py::arg("threads"));
  m.def("smallest_keys", &smallest_keys, py::arg("pointers").noconvert(), py::arg("columns").noconvert(), py::arg("weights").noconvert(),
        py::arg("fanout"), py::arg("minibatches").noconvert(), py::arg("seed"), py::arg("tag"), py::arg("threads"));
}

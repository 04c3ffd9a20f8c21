// Random words, node-wise draws and the s smallest keys: who draws what is in uniform_row.h and race_row.h.
#include <limits>

#include "native.h"
#include "race_row.h"
#include "uniform_row.h"

namespace {

enum Law { UNIFORM = 0, REPLACEMENT = 1, RACE = 2, LABOR = 3 };  // bulksample.rng.Law

constexpr bs_i64 BLOCK = 1024;         // rows handed to a thread at once
constexpr bs_i64 AHEAD = 24;           // rows whose columns are on their way from memory
constexpr bs_i64 LARGE_FANOUT = 256;   // from here a bitmap replaces insertion

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

// The `keep` smallest keys of a stream of candidates, in memory for about twice as many.
class Race {
 public:
  struct Entry {
    double key;
    bs_i32 column;
    bs_i64 place;  // where the candidate stands in its row
  };
  explicit Race(bs_i64 keep) : keep_(keep), bound_(std::numeric_limits<double>::infinity()) {}
  void offer(double key, bs_i32 column, bs_i64 place) {
    if (key > bound_) return;
    entries_.push_back({key, column, place});
    if ((bs_i64)entries_.size() >= 2 * keep_ + 64) shrink();
  }
  // The survivors, nearest key first only as far as `shrink` sorts: the first `keep` are the smallest.
  std::vector<Entry>& finish() {
    if ((bs_i64)entries_.size() > keep_) shrink();
    return entries_;
  }
  void restart() {
    entries_.clear();
    bound_ = std::numeric_limits<double>::infinity();
  }
  static bool before(const Entry& a, const Entry& b) { return bs_before(a.key, a.column, b.key, b.column); }
  static bool by_column(const Entry& a, const Entry& b) { return a.column < b.column; }

 private:
  void shrink() {
    if (keep_ == 0) return entries_.clear();
    std::nth_element(entries_.begin(), entries_.begin() + (keep_ - 1), entries_.end(), before);
    entries_.resize(keep_);
    bound_ = entries_.back().key;
  }
  bs_i64 keep_;
  double bound_;
  std::vector<Entry> entries_;
};

struct Rows {  // rows of A that a bulk draws from, and the minibatch each belongs to
  const bs_i64* indptr;
  const bs_i32* indices;
  const bs_i64* values;  // or null: ones
  const bs_i32* vertices;
  const bs_i32* names;  // what the counters call a row
  const bs_i64* pointers;
  const bs_i64* minibatches;
  bs_i64 rows, k;
};

// Hands out the minibatch id of row after row.
class MinibatchOf {
 public:
  MinibatchOf(const Rows& q, bs_i64 first) : q_(q), at_(std::upper_bound(q.pointers, q.pointers + q.k + 1, first) - q.pointers - 1) {}
  bs_u32 operator()(bs_i64 row) {
    while (q_.pointers[at_ + 1] <= row) ++at_;
    return (bs_u32)q_.minibatches[at_];
  }

 private:
  const Rows& q_;
  bs_i64 at_;
};

// How many neighbours each row will draw, and where its row of A starts (read once, at random; kept for the fill).
void count_rows(const Rows& q, bs_i64 fanout, Law law, bs_i64* counts, bs_i64* starts, bs_i64 b, bs_i64 e) {
  for (bs_i64 r = b; r < e; ++r) {
    if (r + AHEAD < e) __builtin_prefetch(&q.indptr[q.vertices[r + AHEAD]]);
    const bs_i64 start = q.indptr[q.vertices[r]], degree = q.indptr[q.vertices[r] + 1] - start;
    starts[r] = start;
    if (fanout < 0) {
      counts[r] = degree;
    } else if (law == REPLACEMENT) {
      counts[r] = degree ? fanout : 0;
    } else if (law == UNIFORM || !q.values) {
      counts[r] = std::min(degree, fanout);
    } else {  // only positive weights are ever drawn
      bs_i64 positive = 0;
      for (bs_i64 i = start; i < start + degree && positive < fanout; ++i) positive += q.values[i] > 0;
      counts[r] = positive;
    }
  }
}

void draw_positions(const BsStream& stream, Law law, bs_i64 degree, bs_i64 s, bs_u32* picks, std::vector<bs_u64>& bitmap) {
  if (law == REPLACEMENT && s < LARGE_FANOUT) {
    bs_replacement_row(stream, (bs_u32)degree, (bs_u32)s, picks);
  } else if (law == REPLACEMENT) {
    BsDraws draws(stream);
    for (bs_i64 t = 0; t < s; ++t) picks[t] = draws.below((bs_u32)degree);
    std::sort(picks, picks + s);
  } else if (s < LARGE_FANOUT) {
    bs_floyd_row(stream, (bs_u32)degree, (bs_u32)s, picks);
  } else {
    if ((bs_i64)bitmap.size() < degree / 64 + 1) bitmap.resize(degree / 64 + 1, 0);
    bs_floyd_row_large(stream, (bs_u32)degree, (bs_u32)s, picks, bitmap.data());
  }
}

// Uniform laws. Positions are drawn AHEAD rows before their columns are read, so that the reads overlap;
// meanwhile they stand where the columns will.
void fill_uniform(const Rows& q, BsStream stream, Law law, bool all, const bs_i64* starts, const bs_i64* out_pointers, bs_i32* out, bs_i64 b,
                  bs_i64 e) {
  MinibatchOf minibatch_of(q, b);
  std::vector<bs_u64> bitmap;
  for (bs_i64 r = b; r < e + AHEAD; ++r) {
    if (r < e) {
      const bs_i64 s = out_pointers[r + 1] - out_pointers[r];
      const bs_i32* row = q.indices + starts[r];
      bs_u32* picks = (bs_u32*)out + out_pointers[r];
      const bs_i64 degree = s && !all ? q.indptr[q.vertices[r] + 1] - starts[r] : s;
      if (degree == s && law == UNIFORM) {
        for (bs_i64 i = 0; i < s; ++i) picks[i] = (bs_u32)i;
        for (bs_i64 i = 0; i < s; i += 16) __builtin_prefetch(row + i);
      } else {
        stream.vertex = (bs_u32)q.names[r];
        stream.minibatch = minibatch_of(r);
        draw_positions(stream, law, degree, s, picks, bitmap);
        for (bs_i64 i = 0; i < s; ++i) __builtin_prefetch(row + picks[i]);
      }
    }
    if (const bs_i64 ready = r - AHEAD; ready >= b) {
      const bs_i32* row = q.indices + starts[ready];
      for (bs_i64 i = out_pointers[ready]; i < out_pointers[ready + 1]; ++i) out[i] = row[(bs_u32)out[i]];
    }
  }
}

// Keyed laws: the s smallest keys of each row.
void fill_race(const Rows& q, BsStream stream, Law law, bs_i64 fanout, const bs_i64* starts, const bs_i64* out_pointers, bs_i32* out, bs_i64 b,
               bs_i64 e) {
  MinibatchOf minibatch_of(q, b);
  Race race(fanout);
  for (bs_i64 r = b; r < e; ++r) {
    const bs_i64 s = out_pointers[r + 1] - out_pointers[r], degree = q.indptr[q.vertices[r] + 1] - starts[r];
    const bs_i32* row = q.indices + starts[r];
    const bs_i64* weights = q.values ? q.values + starts[r] : nullptr;
    bs_i32* picks = out + out_pointers[r];
    if (s == degree) {
      std::copy(row, row + degree, picks);
      continue;
    }
    stream.vertex = law == RACE ? (bs_u32)q.names[r] : 0u;
    stream.minibatch = minibatch_of(r);
    race.restart();
    for (bs_i64 i = 0; i < degree; ++i)
      if (!weights || weights[i] > 0) race.offer(bs_key(stream, (bs_u32)row[i], weights ? (double)weights[i] : 1.0), row[i], i);
    auto& kept = race.finish();
    std::sort(kept.begin(), kept.end(), Race::by_column);
    for (bs_i64 i = 0; i < s; ++i) picks[i] = kept[i].column;
  }
}

py::tuple sample_rows(In<bs_i64> indptr, In<bs_i32> indices, std::optional<In<bs_i64>> values, In<bs_i32> vertices, In<bs_i32> names,
                      In<bs_i64> pointers, In<bs_i64> minibatches, bs_i64 fanout, int law_number, bs_u64 seed, bs_u32 tag, int threads) {
  const Law law = fanout < 0 ? UNIFORM : (Law)law_number;
  const Rows q{indptr.data(),   indices.data(),     values ? values->data() : nullptr, vertices.data(), names.data(),
               pointers.data(), minibatches.data(), vertices.size(),                   minibatches.size()};
  const BsStream stream{seed, 0, 0, tag};
  py::array_t<bs_i64> out_pointers(q.rows + 1);
  bs_i64* ends = out_pointers.mutable_data();
  std::vector<bs_i64> starts(q.rows);
  {
    py::gil_scoped_release nogil;
    ends[0] = 0;
    for_blocks(q.rows, BLOCK, threads, [&](bs_i64 b, bs_i64 e) { count_rows(q, fanout, law, ends + 1, starts.data(), b, e); });
    counts_to_pointers(ends, q.rows);
  }
  py::array_t<bs_i32> columns(ends[q.rows]);
  bs_i32* out = columns.mutable_data();
  {
    py::gil_scoped_release nogil;
    for_blocks(q.rows, BLOCK, threads, [&](bs_i64 b, bs_i64 e) {
      if (law == RACE || law == LABOR)
        fill_race(q, stream, law, fanout, starts.data(), ends, out, b, e);
      else
        fill_uniform(q, stream, law, fanout < 0, starts.data(), ends, out, b, e);
    });
  }
  return py::make_tuple(out_pointers, columns);
}

// One row of candidates per minibatch, or one that all share.
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
      for (bs_i64 i = b; i < e; ++i)
        if (weight[i] > 0) race.offer(bs_key(stream, (bs_u32)column[i], weight[i]), column[i], i);
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
      *p++ = bs_inclusion(weight[entry.place], tau[j]);
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
  m.def("smallest_keys", &smallest_keys, py::arg("pointers").noconvert(), py::arg("columns").noconvert(), py::arg("weights").noconvert(),
        py::arg("fanout"), py::arg("minibatches").noconvert(), py::arg("seed"), py::arg("tag"), py::arg("threads"));
}

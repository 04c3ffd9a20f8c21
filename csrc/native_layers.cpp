// Layer-wise sampling in one call: a thread takes a minibatch through all its hops. The sums over the frontier grow with it, so
// each row of A is added once, however many hops expand it; what a hop drew is looked for in the rows through a bitmap.
#include "native_race.h"
#include "native_sums.h"

// Which of 64 columns are in a set, one bit a vertex.
BS_CLONES bs_u64 present(const bs_u32* bits, const bs_i32* columns) {
  bs_u32 in[64];
  for (int i = 0; i < 64; ++i) in[i] = bits[(bs_u32)columns[i] >> 5] >> ((bs_u32)columns[i] & 31u) & 1u;
  bs_u64 mask = 0;
  for (int i = 0; i < 64; ++i) mask |= (bs_u64)in[i] << i;
  return mask;
}

// Weights of the edges of a row: w / sum, over the inclusion probability, and over their total; see samplers/base.py.
BS_CLONES void weigh(double* shares, const double* inclusion, double sum, bool renormalise, bs_i64 count, float* out) {
  for (bs_i64 i = 0; i < count; ++i) shares[i] = shares[i] / sum;
  if (inclusion)
    for (bs_i64 i = 0; i < count; ++i) shares[i] = shares[i] / inclusion[i];
  double total = 0.0;
  for (bs_i64 i = 0; i < count; ++i) total += shares[i];  // in this order
  if (renormalise)
    for (bs_i64 i = 0; i < count; ++i) shares[i] = total > 0 ? shares[i] / total : 0.0;
  for (bs_i64 i = 0; i < count; ++i) out[i] = (float)shares[i];
}

namespace {

struct Pick {
  bs_i32 column;
  double inclusion;
};

struct LayerHop {
  Buffer<bs_i64> ends;     // of the rows, 0 first
  Buffer<bs_i32> columns;  // local
  Buffer<float> weights;
};

struct LayerExpanded {  // one minibatch
  Buffer<bs_i32> seed_rows, vertices;
  std::vector<bs_i64> held;
  std::vector<LayerHop> hops;  // one each, or one that all continue
};

// The set that a hop drew: a bit for each vertex, to rule a column out, and a table that says which it is.
class Drawn {
 public:
  explicit Drawn(bs_i64 n) : bits_((n >> 5) + 1) {}
  void set(const std::vector<Pick>& picks) {
    picks_ = &picks;
    table_bits_ = bits_for((bs_i64)picks.size());
    table_.assign(1ull << table_bits_, BsSlot{bs_free, 0});
    for (std::size_t i = 0; i < picks.size(); ++i) {
      bits_[picks[i].column >> 5] |= 1u << ((bs_u32)picks[i].column & 31u);
      bs_find_or_insert(table_.data(), table_bits_, (bs_u32)picks[i].column, (bs_u32)i);
    }
  }
  void clear() {
    for (const Pick& pick : *picks_) bits_[pick.column >> 5] = 0;
  }
  // visit(which pick, where in the row), in ascending order.
  template <class Visit>
  void meet(const bs_i32* row, bs_i64 degree, Visit visit) const {
    if ((bs_i64)picks_->size() * 64 < degree) return search(row, degree, visit);
    bs_i64 first = 0;
    for (; first + 64 <= degree; first += 64)
      for (bs_u64 in = present(&bits_[0], row + first); in; in &= in - 1) {
        const bs_i64 at = first + 63 - bs_leading_zeros(in & (~in + 1));
        visit(bs_find(table_.data(), table_bits_, (bs_u32)row[at]), at);
      }
    for (; first < degree; ++first)
      if (bits_[row[first] >> 5] >> ((bs_u32)row[first] & 31u) & 1u) visit(bs_find(table_.data(), table_bits_, (bs_u32)row[first]), first);
  }

 private:
  template <class Visit>
  void search(const bs_i32* row, bs_i64 degree, Visit visit) const {
    const bs_i32 *from = row, *end = row + degree;
    for (std::size_t i = 0; i < picks_->size(); ++i) {
      from = std::lower_bound(from, end, (*picks_)[i].column);
      if (from != end && *from == (*picks_)[i].column) visit((bs_u32)i, from - row);
    }
  }
  Zeros<bs_u32> bits_;
  const std::vector<Pick>* picks_ = nullptr;
  int table_bits_ = 0;
  std::vector<BsSlot> table_;
};

// What a thread works with.
template <class Sums>
struct Own {
  ColumnSums<Sums> sums;
  Drawn drawn;
  HashNumbers numbers;
  std::vector<bs_i32> columns;  // of the race
  std::vector<double> weights;
  std::vector<bs_u32> local;  // the number of each vertex drawn, once it has one
  std::vector<double> shares, inclusion;  // of the edges of a row
};

struct Layers {
  const bs_i64* indptr;
  const bs_i32* indices;
  const bs_i64 *values, *entries, *factors;  // weights of A; what stands in the sums; its factor by row; null: ones
  const double* row_sums;
  bs_i64 n;
  bool squared;                           // the race runs by the squares of the sums
  std::vector<bs_i64> fanouts;            // of hops that draw by race
  std::vector<bs_u32> tags;
  bs_u64 seed;
  std::vector<std::vector<std::vector<Pick>>> given;  // else what minibatch j draws in hop h: given[h][j]
  const bs_i64 *minibatches, *pointers;
  const bs_i32* seeds;
  bool debias, renormalise, only_new;

  std::size_t hops() const { return given.empty() ? fanouts.size() : given.size(); }

  template <class Sums>
  std::vector<Pick> race(Own<Sums>& own, std::size_t h, bs_u32 minibatch) const {
    own.sums.list(squared, own.columns, own.weights);
    const bs_i64 count = (bs_i64)own.columns.size(), s = fanouts[h] < 0 ? count : fanouts[h];
    const BsStream stream{seed, 0, minibatch, tags[h]};
    Race race(s + 1);  // one more than is drawn: its key is tau
    race.scan(stream, own.columns.data(), own.weights.data(), count);
    auto& kept = race.finish();
    double tau = std::numeric_limits<double>::infinity();
    if ((bs_i64)kept.size() > s) {
      const auto out = std::max_element(kept.begin(), kept.end(), Race::before);
      tau = out->key;
      kept.erase(out);
    }
    std::sort(kept.begin(), kept.end(), Race::by_column);
    std::vector<Pick> picks;
    for (const auto& entry : kept) picks.push_back({entry.column, bs_inclusion(own.weights[entry.place], tau)});
    return picks;
  }

  // The edges of one row to what was drawn.
  template <class Sums>
  void edges(bs_i32 vertex, const std::vector<Pick>& picks, LayerHop& hop, LayerExpanded& out, Own<Sums>& own) const {
    const bs_i64 start = indptr[vertex], degree = indptr[vertex + 1] - start, most = std::min<bs_i64>(degree, (bs_i64)picks.size());
    bs_i32* columns = hop.columns.room(most);
    own.shares.resize(picks.size());
    own.inclusion.resize(picks.size());
    bs_i64 count = 0;
    own.drawn.meet(indices + start, degree, [&](bs_u32 pick, bs_i64 at) {
      if (own.local[pick] == bs_free) own.local[pick] = enter(picks[pick].column, out.vertices, own.numbers);
      columns[count] = (bs_i32)own.local[pick];
      own.shares[count] = values ? (double)values[start + at] : 1.0;
      own.inclusion[count++] = picks[pick].inclusion;
    });
    weigh(own.shares.data(), debias ? own.inclusion.data() : nullptr, std::max(row_sums[vertex], 1.0), renormalise, count, hop.weights.room(most));
    hop.columns.add(count);
    hop.weights.add(count);
    hop.ends.push(hop.columns.size());
  }

  static bs_u32 enter(bs_i32 vertex, Buffer<bs_i32>& vertices, HashNumbers& numbers) {
    const bs_u32 next = (bs_u32)vertices.size();
    numbers.expect(next + 1);
    const bs_u32 number = numbers.number(vertex, next);
    if (number == next) vertices.push(vertex);
    return number;
  }

  // Rows on their way: pointers first, then the first columns.
  void foretell_row(const bs_i32* vertices, bs_i64 r, bs_i64 last) const {
    if (r + 16 < last) foretell(&indptr[vertices[r + 16]]);
    if (r + 6 >= last) return;
    const bs_i64 *ends = indptr + vertices[r + 6], lines = std::min<bs_i64>(8, (ends[1] - ends[0]) / 16);
    for (bs_i64 line = 0; line <= lines; ++line) foretell(indices + ends[0] + 16 * line);
  }

  template <class Sums>
  LayerExpanded expand(bs_i64 j, Own<Sums>& own) const {
    LayerExpanded out;
    const bs_i64 asked = pointers[j + 1] - pointers[j];
    std::copy_n(seeds + pointers[j], asked, out.seed_rows.room(asked));
    out.seed_rows.add(asked);
    renumber(own.numbers, out.seed_rows.data(), asked, out.vertices);
    out.held.push_back(out.vertices.size());
    out.hops.resize(only_new ? 1 : hops());
    for (LayerHop& hop : out.hops) hop.ends.push(0);
    for (std::size_t h = 0; h < hops(); ++h) {
      LayerHop& hop = out.hops[only_new ? 0 : h];
      const bs_i64 before = h ? out.held[h - 1] : 0, first = only_new ? before : 0, last = out.held[h];
      std::vector<Pick> raced;
      if (given.empty()) {
        if (only_new) own.sums.clear();
        for (bs_i64 r = before; r < last; ++r) {  // the rows before are in the sums, or left out
          foretell_row(out.vertices.data(), r, last);
          const bs_i64 v = out.vertices[r], start = indptr[v];
          own.sums.add(indices + start, entries ? entries + start : nullptr, factors ? factors[v] : 1, indptr[v + 1] - start);
        }
        raced = race(own, h, (bs_u32)minibatches[j]);
      }
      const std::vector<Pick>& picks = given.empty() ? raced : given[h][j];
      own.drawn.set(picks);
      own.local.assign(picks.size(), bs_free);
      for (bs_i64 r = first; r < last; ++r) {
        foretell_row(out.vertices.data(), r, last);
        edges(out.vertices[r], picks, hop, out, own);
      }
      own.drawn.clear();
      out.held.push_back(out.vertices.size());
    }
    own.sums.clear();
    own.numbers.forget(out.vertices.size());
    return out;
  }

  template <class Sums>
  void expand_all(std::vector<LayerExpanded>& out, bs_i64 expected, int threads) const {
    std::vector<std::optional<Own<Sums>>> owns(std::max(threads, 1));
    for_blocks((bs_i64)out.size(), 1, threads, [&](bs_i64 j, bs_i64) {
      auto& own = owns[omp_get_thread_num()];
      if (!own) own.emplace(Own<Sums>{{n, expected}, Drawn(n), {n, 4096}, {}, {}, {}, {}, {}});
      out[j] = expand(j, *own);
    });
  }
};

using Given = std::vector<std::tuple<In<bs_i64>, In<bs_i32>, In<double>>>;  // of each hop: pointers, columns, inclusion

std::vector<std::vector<Pick>> picks_of(const std::tuple<In<bs_i64>, In<bs_i32>, In<double>>& hop) {
  const auto& [pointers, columns, inclusion] = hop;
  std::vector<std::vector<Pick>> out(pointers.size() - 1);
  for (std::size_t j = 0; j < out.size(); ++j)
    for (bs_i64 i = pointers.data()[j]; i < pointers.data()[j + 1]; ++i) out[j].push_back({columns.data()[i], inclusion.data()[i]});
  return out;
}

// The columns that the rows of b seeds are likely to have, and whether k minibatches have their sums in arrays.
std::pair<bs_i64, bool> sums_of(bs_i64 n, bs_i64 edges, bs_i64 k, bs_i64 b, int threads) {
  const bs_i64 degree = edges / std::max<bs_i64>(n, 1) + 1, likely = std::min(n, (b + 1) * degree);
  return {likely, dense_pays(n, likely * 4 * ((k + threads - 1) / threads))};
}

// Bytes of the tables of `expand_layers` for k > 0 minibatches of b seeds that race among so many candidates, 0: what is drawn is given.
bs_i64 layer_tables(bs_i64 n, bs_i64 edges, bs_i64 k, bs_i64 b, bs_i64 candidates, int threads) {
  const auto [likely, dense] = sums_of(n, edges, k, b, threads);
  const bs_i64 sums = dense ? 8 * n : 16ll << bits_for(std::max(likely, 2 * candidates));
  return std::min<bs_i64>(k, threads) * (n / 8 + (candidates ? sums + 16 * candidates : 0));
}

py::list expand_layers(In<bs_i64> indptr, In<bs_i32> indices, std::optional<In<bs_i64>> values, In<double> row_sums,
                       std::optional<In<bs_i64>> entries, std::optional<In<bs_i64>> factors, bool squared, std::vector<bs_i64> fanouts,
                       std::vector<bs_u32> tags, bs_u64 seed, Given given, In<bs_i64> minibatches, In<bs_i64> pointers, In<bs_i32> seeds,
                       bool debias, bool renormalise, bool only_new, int threads) {
  const bs_i64 n = indptr.size() - 1;
  Layers layers{indptr.data(), indices.data(), values ? values->data() : nullptr, entries ? entries->data() : nullptr,
                factors ? factors->data() : nullptr, row_sums.data(), n, squared, std::move(fanouts), std::move(tags), seed, {},
                minibatches.data(), pointers.data(), seeds.data(), debias, renormalise, only_new};
  for (const auto& hop : given) layers.given.push_back(picks_of(hop));
  std::vector<LayerExpanded> drawn(minibatches.size());
  if (!drawn.empty()) {
    py::gil_scoped_release nogil;
    const auto [likely, dense] = sums_of(n, indices.size(), (bs_i64)drawn.size(), seeds.size() / (bs_i64)drawn.size(), threads);
    if (dense)
      layers.expand_all<DenseSums>(drawn, likely, threads);
    else
      layers.expand_all<HashSums>(drawn, likely, threads);
  }
  py::list out;
  for (LayerExpanded& one : drawn) {
    py::list hops;
    for (LayerHop& hop : one.hops) hops.append(py::make_tuple(hop.ends.release(), hop.columns.release(), hop.weights.release()));
    out.append(py::make_tuple(one.seed_rows.release(), one.vertices.release(), one.held, hops));
  }
  return out;
}

}  // namespace

void bind_layers(py::module_& m) {
  m.def("layer_tables", &layer_tables, py::arg("n"), py::arg("edges"), py::arg("k"), py::arg("b"), py::arg("candidates"), py::arg("threads"));
  m.def("expand_layers", &expand_layers, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("values").noconvert(),
        py::arg("row_sums").noconvert(), py::arg("entries").noconvert(), py::arg("factors").noconvert(), py::arg("squared"),
        py::arg("fanouts"), py::arg("tags"), py::arg("seed"), py::arg("given"), py::arg("minibatches").noconvert(),
        py::arg("pointers").noconvert(), py::arg("seeds").noconvert(), py::arg("debias"), py::arg("renormalise"), py::arg("only_new"),
        py::arg("threads"));
}

// Layer-wise sampling in one call: a thread takes a minibatch through all its hops. First it draws: the sums over the frontier grow
// with it, and each row of A is added once. Then it extracts: each row is read once, for all the hops that expand it.
#include "native_race.h"
#include "native_ranks.h"
#include "native_sums.h"

BS_CLONES bs_i64 meet_members(const bs_u64* bits, const bs_u32* ranks, const bs_i32* row, bs_i64 degree, bs_i32* at, bs_u32* members) {
  bs_i64 count = 0;
  for (bs_i64 first = 0; first < degree; first += 16) {
    foretell(row + first + FAR);
    for (bs_i64 i = first; i < std::min(first + 16, degree); ++i) {
      const bs_u32 column = (bs_u32)row[i];
      at[count] = (bs_i32)i;  // stays only where it is a member: a branch would miss
      count += bits[column >> 6] >> (column & 63u) & 1u;
    }
  }
  for (bs_i64 i = 0; i < count; ++i) {
    const bs_u32 column = (bs_u32)row[at[i]];
    members[i] = ranks[column >> 6] + (bs_u32)__builtin_popcountll(bits[column >> 6] & ((1ull << (column & 63u)) - 1));
  }
  return count;
}

// Keeps the members that a hop drew, which have an inclusion probability of 0 or more; returns how many. Their weights `of_row` may be
// null: ones.
BS_CLONES bs_i64 keep_drawn(const bs_u32* members, const double* of_row, const double* of_member, bs_i64 count, bs_i32* columns, double* shares,
                            double* inclusion) {
  bs_i64 kept = 0;
  for (bs_i64 i = 0; i < count; ++i) {
    columns[kept] = (bs_i32)members[i];  // stays only where it was drawn
    inclusion[kept] = of_member[members[i]];
    if (of_row) shares[kept] = of_row[i];
    kept += inclusion[kept] >= 0;
  }
  if (!of_row) std::fill_n(shares, kept, 1.0);
  return kept;
}

// Weights of the edges of a row: w / sum, over the inclusion probability, and over their total; see bulksample/adjacency.py.
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

// Scratch of a thread.
template <class Sums>
struct Own {
  ColumnSums<Sums> sums;
  Ranks drawn;  // by all hops, or by one where each expands rows of its own
  HashNumbers numbers;
  std::vector<std::vector<double>> inclusion;  // of each member of `drawn` by hop; below 0 where the hop did not draw it
  std::vector<bs_u32> local;                   // the number of each member, once it has one
  std::vector<bs_i32> at;                      // members that a row meets: where, and which
  std::vector<bs_u32> met;
  std::vector<double> of_row;  // weights of A where it meets them
  std::vector<double> shares, divisors;  // of the edges of a row to what one hop drew
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
    const BsStream stream{seed, 0, minibatch, tags[h]};
    const bs_i64 s = fanouts[h] < 0 ? n : fanouts[h];
    Race race(s + 1);  // one more than is drawn: its key is tau
    own.sums.each(squared, [&](const bs_i32* columns, const double* weights, bs_i64 count) { race.scan(stream, columns, weights, count); });
    auto& kept = race.finish();
    double tau = std::numeric_limits<double>::infinity();
    if ((bs_i64)kept.size() > s) {
      const auto out = std::max_element(kept.begin(), kept.end(), Race::before);
      tau = out->key;
      kept.erase(out);
    }
    std::sort(kept.begin(), kept.end(), Race::by_column);
    std::vector<Pick> picks;
    for (const auto& entry : kept) picks.push_back({entry.column, bs_inclusion(own.sums.weight_of(entry.column, squared), tau)});
    return picks;
  }

  // Draws all hops. A drawn vertex is a neighbour of the frontier, so the vertices of the next frontier are known before any edge.
  template <class Sums>
  std::vector<std::vector<Pick>> races(std::vector<bs_i32> held, bs_u32 minibatch, Own<Sums>& own) const {
    std::vector<std::vector<Pick>> out;
    std::sort(held.begin(), held.end());
    std::vector<bs_i32> fresh = held;
    for (std::size_t h = 0; h < hops(); ++h) {
      if (only_new) own.sums.clear();
      own.sums.add_rows(indptr, indices, entries, factors, fresh);
      out.push_back(race(own, h, minibatch));
      std::vector<bs_i32> before = std::move(held);
      const std::vector<bs_i32> drawn = columns_of(out.back());
      fresh.clear(), held.clear();
      std::set_difference(drawn.begin(), drawn.end(), before.begin(), before.end(), std::back_inserter(fresh));
      std::set_union(drawn.begin(), drawn.end(), before.begin(), before.end(), std::back_inserter(held));
    }
    own.sums.clear();
    return out;
  }

  static std::vector<bs_i32> columns_of(const std::vector<Pick>& picks) {
    std::vector<bs_i32> columns(picks.size());
    std::transform(picks.begin(), picks.end(), columns.begin(), [](const Pick& pick) { return pick.column; });
    return columns;
  }

  // The vertices of hops first .. last - 1 become the members that rows are searched for.
  template <class Sums>
  void look_for(const std::vector<const std::vector<Pick>*>& picks, std::size_t first, std::size_t last, Own<Sums>& own) const {
    std::vector<bs_i32> members, more;
    for (std::size_t h = first; h < last; ++h, members.swap(more)) {
      const std::vector<bs_i32> drawn = columns_of(*picks[h]);
      more.clear();
      std::set_union(members.begin(), members.end(), drawn.begin(), drawn.end(), std::back_inserter(more));
    }
    own.inclusion.resize(hops());
    for (std::size_t h = first; h < last; ++h) {
      own.inclusion[h].assign(members.size(), -1.0);
      std::size_t at = 0;
      for (const Pick& pick : *picks[h]) {
        while (members[at] != pick.column) ++at;
        own.inclusion[h][at] = pick.inclusion;
      }
    }
    own.local.assign(members.size(), bs_free);
    for (auto* edges : {&own.of_row, &own.shares, &own.divisors}) edges->resize(members.size() + 1);
    own.at.resize(members.size() + 1);
    own.met.resize(members.size() + 1);
    own.drawn.set(std::move(members));
  }

  // Extracts the edges of one row to the vertices that hops first .. last - 1 drew; columns are members until `settle`.
  template <class Sums>
  void edges(bs_i32 vertex, std::size_t first, std::size_t last, LayerExpanded& out, Own<Sums>& own) const {
    const bs_i64 start = indptr[vertex], met = own.drawn.meet(indices + start, indptr[vertex + 1] - start, own.at.data(), own.met.data());
    for (bs_i64 i = 0; values && i < met; ++i) own.of_row[i] = (double)values[start + own.at[i]];
    for (std::size_t h = first; h < last; ++h) {
      LayerHop& hop = out.hops[only_new ? 0 : h];
      bs_i32* columns = hop.columns.room(met + 1);
      const bs_i64 count = keep_drawn(own.met.data(), values ? own.of_row.data() : nullptr, own.inclusion[h].data(), met, columns,
                                      own.shares.data(), own.divisors.data());
      weigh(own.shares.data(), debias ? own.divisors.data() : nullptr, std::max(row_sums[vertex], 1.0), renormalise, count,
            hop.weights.room(count));
      hop.columns.add(count);
      hop.weights.add(count);
      hop.ends.push(hop.columns.size());
    }
  }

  // Members become numbers, new ones in the order in which rows meet them.
  template <class Sums>
  static void settle(bs_i32* columns, bs_i64 count, Buffer<bs_i32>& vertices, Own<Sums>& own) {
    for (bs_i64 i = 0; i < count; ++i) {
      bs_u32& number = own.local[columns[i]];
      if (number == bs_free) number = enter(own.drawn.members()[columns[i]], vertices, own.numbers);
      columns[i] = (bs_i32)number;
    }
  }

  static bs_u32 enter(bs_i32 vertex, Buffer<bs_i32>& vertices, HashNumbers& numbers) {
    const bs_u32 next = (bs_u32)vertices.size();
    numbers.expect(next + 1);
    const bs_u32 number = numbers.number(vertex, next);
    if (number == next) vertices.push(vertex);
    return number;
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
    std::vector<std::vector<Pick>> raced;
    if (given.empty()) raced = races({out.vertices.data(), out.vertices.data() + out.vertices.size()}, (bs_u32)minibatches[j], own);
    std::vector<const std::vector<Pick>*> picks;
    for (std::size_t h = 0; h < hops(); ++h) picks.push_back(given.empty() ? &raced[h] : &given[h][j]);
    for (std::size_t h = 0; h < hops(); ++h) {
      LayerHop& hop = out.hops[only_new ? 0 : h];
      const std::size_t last = only_new ? h + 1 : hops();
      if (h == 0 || only_new) look_for(picks, h, last, own);
      const bs_i64 settled = only_new ? hop.columns.size() : 0;
      for (bs_i64 r = h ? out.held[h - 1] : 0; r < out.held[h]; ++r) {
        foretell_row(indptr, indices, out.vertices.data(), r, out.held[h]);
        if (r + 16 < out.held[h]) foretell(&row_sums[out.vertices[r + 16]]);
        edges(out.vertices[r], h, last, out, own);
      }
      settle(hop.columns.data() + settled, hop.columns.size() - settled, out.vertices, own);
      out.held.push_back(out.vertices.size());
    }
    own.numbers.forget(out.vertices.size());
    return out;
  }

  template <class Sums>
  void expand_all(std::vector<LayerExpanded>& out, bs_i64 expected, int threads) const {
    std::vector<std::optional<Own<Sums>>> owns(std::max(threads, 1));
    for_blocks((bs_i64)out.size(), 1, threads, [&](bs_i64 j, bs_i64, int place) {
      auto& own = owns[place];
      if (!own) own.emplace(Own<Sums>{{n, expected}, Ranks(n), {n, 4096}, {}, {}, {}, {}, {}, {}, {}});
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

// Bytes of the tables of `expand_layers` for k > 0 minibatches of b seeds that race among `candidates` vertices; 0 if the draws are given.
bs_i64 layer_tables(bs_i64 n, bs_i64 edges, bs_i64 k, bs_i64 b, bs_i64 candidates, int threads) {
  const auto [likely, dense] = sums_of(n, edges, k, b, threads);
  const bs_i64 sums = dense ? 8 * n : 16ll << bits_for(std::max(likely, 2 * candidates));
  return std::min<bs_i64>(k, threads) * (n / 8 + n / 16 + (candidates ? sums + 16 * candidates : 0));
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

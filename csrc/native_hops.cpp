// Node-wise sampling in one call: a thread takes a minibatch through all its hops, draws, reads and numbers the vertices in
// one pass, and writes the arrays of its blocks where they stay.
#include "native_numbers.h"
#include "native_rows.h"

namespace {

struct Hop {
  Buffer<bs_i64> ends;      // of the rows, 0 first
  Buffer<bs_i32> columns;   // local
};

struct Expanded {  // one minibatch
  Buffer<bs_i32> seed_rows, vertices;
  std::vector<bs_i64> held;  // vertices before the first hop and after each
  std::vector<Hop> hops;     // one each, or one that all continue
};

// Turns the columns of a hop into numbers as they come from memory.
template <class Numbers>
struct Numberer {
  Numbers& numbers;
  Buffer<bs_i32>&columns, &vertices;
  void foretell(bs_i32 column) const { numbers.foretell(column); }
  void settle(bs_i64 first, bs_i64 last) { renumber(numbers, columns.data() + first, last - first, vertices); }
};

struct Bulk {
  std::vector<Drawing> drawings;
  const bs_i64 *minibatches, *pointers;
  const bs_i32* seeds;
  bool only_new;

  template <class Numbers>
  Expanded expand(bs_i64 j, Numbers& numbers) const {
    Expanded out;
    const bs_i64 asked = pointers[j + 1] - pointers[j];
    std::copy_n(seeds + pointers[j], asked, out.seed_rows.room(asked));
    out.seed_rows.add(asked);
    renumber(numbers, out.seed_rows.data(), asked, out.vertices);
    out.held.push_back(out.vertices.size());
    out.hops.resize(only_new ? 1 : drawings.size());
    for (Hop& hop : out.hops) hop.ends.push(0);
    for (std::size_t h = 0; h < drawings.size(); ++h) {
      Hop& hop = out.hops[only_new ? 0 : h];
      const bs_i64 first = only_new && h ? out.held[h - 1] : 0, rows = out.held[h] - first;
      const bs_u32 id = (bs_u32)minibatches[j];
      const bs_i64 likely = rows * std::clamp<bs_i64>(drawings[h].fanout, 0, 64);
      hop.columns.room(likely);
      out.vertices.room(likely);
      RowFlight flight(drawings[h]);
      Numberer<Numbers> sink{numbers, hop.columns, out.vertices};
      auto vertex = [&](bs_i64 r) { return out.vertices[first + r]; };
      auto row = [&](bs_i64 r) { return Row{vertex(r), vertex(r), id}; };
      flight.run(rows, vertex, row, hop.columns, hop.ends, sink);
      out.held.push_back(out.vertices.size());
    }
    numbers.forget(out.vertices.size());
    return out;
  }

  template <class Numbers>
  void expand_all(std::vector<Expanded>& out, bs_i64 n, bs_i64 expected, int threads) const {
    std::vector<std::optional<Numbers>> numbers(std::max(threads, 1));
    for_blocks((bs_i64)out.size(), 1, threads, [&](bs_i64 j, bs_i64) {
      auto& own = numbers[omp_get_thread_num()];
      if (!own) own.emplace(n, expected);
      out[j] = expand(j, *own);
    });
  }
};

// Vertices that a minibatch of b seeds meets at the most, up to n.
bs_i64 most_vertices(bs_i64 b, const std::vector<bs_i64>& fanouts, bs_i64 n) {
  for (bs_i64 s : fanouts) b = s < 0 ? n : std::min(n, b * (s + 1));
  return b;
}

py::list expand(bs_i64 n, In<bs_i64> indptr, In<bs_i32> indices, std::optional<In<bs_i64>> values, In<bs_i64> minibatches, In<bs_i64> pointers,
                In<bs_i32> seeds, std::vector<bs_i64> fanouts, std::vector<int> laws, std::vector<bs_u32> tags, bs_u64 seed, bool only_new,
                int threads) {
  const bs_i64 k = minibatches.size();
  Bulk bulk{{}, minibatches.data(), pointers.data(), seeds.data(), only_new};
  for (std::size_t h = 0; h < fanouts.size(); ++h)
    bulk.drawings.push_back({indptr.data(), indices.data(), values ? values->data() : nullptr, (Law)laws[h], fanouts[h], seed, tags[h]});
  std::vector<Expanded> drawn(k);
  if (k > 0) {
    py::gil_scoped_release nogil;
    const bs_i64 each = most_vertices(seeds.size() / k + 1, fanouts, n);
    if (dense_pays(n, each * ((k + threads - 1) / threads)))
      bulk.expand_all<DenseNumbers>(drawn, n, each, threads);
    else
      bulk.expand_all<HashNumbers>(drawn, n, each / 4, threads);
  }
  py::list out;
  for (Expanded& one : drawn) {
    py::list hops;
    for (Hop& hop : one.hops) hops.append(py::make_tuple(hop.ends.release(), hop.columns.release()));
    out.append(py::make_tuple(one.seed_rows.release(), one.vertices.release(), one.held, hops));
  }
  return out;
}

}  // namespace

void bind_hops(py::module_& m) {
  m.def("expand", &expand, py::arg("n"), py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("values").noconvert(),
        py::arg("minibatches").noconvert(), py::arg("pointers").noconvert(), py::arg("seeds").noconvert(), py::arg("fanouts"),
        py::arg("laws"), py::arg("tags"), py::arg("seed"), py::arg("only_new"), py::arg("threads"));
}

// Node-wise sampling in one call: a thread takes a minibatch through all its hops, draws, reads and numbers the vertices in
// one pass, and writes the arrays of its blocks in place. If there are more threads than minibatches, a crew of them
// shares each minibatch.
#include "native_crew.h"

namespace {

struct Hop {
  Buffer<bs_i64> ends;     // of the rows, 0 first
  Buffer<bs_i32> columns;  // local
  Buffer<bs_i64> entries;  // positions in A, if asked for
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
  bool only_new, entries;
  int crew;  // threads that share a minibatch

  template <class Numbers>
  void draw_and_number(const Drawing& drawing, bs_u32 id, bs_i64 first, bs_i64 rows, Numbers& numbers, Hop& hop,
                       Buffer<bs_i32>& vertices) const {
    RowFlight flight(drawing);
    if (entries) flight.tell_entries(&hop.entries);
    Numberer<Numbers> sink{numbers, hop.columns, vertices};
    auto vertex = [&](bs_i64 r) { return vertices[first + r]; };
    auto row = [&](bs_i64 r) { return Row{vertex(r), vertex(r), id}; };
    flight.run(rows, vertex, row, hop.columns, hop.ends, sink);
  }

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
      if (crew > 1 && rows >= CrewHop<Numbers>::PAYS)
        CrewHop<Numbers>(drawings[h], id, out.vertices.data() + first, rows, numbers, hop.columns, hop.ends, entries ? &hop.entries : nullptr,
                         out.vertices)
            .run(crew);
      else
        draw_and_number(drawings[h], id, first, rows, numbers, hop, out.vertices);
      out.held.push_back(out.vertices.size());
    }
    numbers.forget(out.vertices.size());
    for (Hop& hop : out.hops) hop.ends.fit(), hop.columns.fit(), hop.entries.fit();
    out.vertices.fit();
    return out;
  }

  template <class Numbers>
  void expand_all(std::vector<Expanded>& out, bs_i64 n, bs_i64 expected, int threads) const {
    std::vector<std::optional<Numbers>> numbers(std::max(threads, 1));
    for_blocks((bs_i64)out.size(), 1, threads, [&](bs_i64 j, bs_i64, int place) {
      auto& own = numbers[place];
      if (!own) own.emplace(n, expected);
      out[j] = expand(j, *own);
    });
  }
};

// Bounds the vertices that a minibatch of b seeds meets, up to n.
bs_i64 most_vertices(bs_i64 b, const std::vector<bs_i64>& fanouts, bs_i64 n) {
  for (bs_i64 s : fanouts) b = s < 0 ? n : std::min(n, b * (s + 1));
  return b;
}

bool numbers_in_arrays(bs_i64 n, bs_i64 k, bs_i64 each, int threads) { return dense_pays(n, each * ((k + threads - 1) / threads)); }

// Bytes of the tables of `expand` for k > 0 minibatches of b seeds that end with `vertices` vertices.
bs_i64 expand_tables(bs_i64 n, bs_i64 k, bs_i64 b, std::vector<bs_i64> fanouts, bs_i64 vertices, int threads) {
  const bs_i64 each = most_vertices(b + 1, fanouts, n), first = bits_for(each / 4);
  const bs_i64 slots = 1ll << (2 * vertices <= (1ll << first) ? first : bits_for(2 * vertices));
  return std::min<bs_i64>(k, threads) * (numbers_in_arrays(n, k, each, threads) ? 4 * n : (bs_i64)sizeof(BsSlot) * slots);
}

py::list expand(bs_i64 n, In<bs_i64> indptr, In<bs_i32> indices, std::optional<In<bs_i64>> values, In<bs_i64> minibatches, In<bs_i64> pointers,
                In<bs_i32> seeds, std::vector<bs_i64> fanouts, std::vector<int> laws, std::vector<bs_u32> tags, bs_u64 seed, bool only_new,
                bool entries, int threads) {
  const bs_i64 k = minibatches.size();
  const int crew = (int)std::max<bs_i64>(1, threads / std::max<bs_i64>(k, 1));
  Bulk bulk{{}, minibatches.data(), pointers.data(), seeds.data(), only_new, entries, crew};
  for (std::size_t h = 0; h < fanouts.size(); ++h)
    bulk.drawings.push_back({indptr.data(), indices.data(), values ? values->data() : nullptr, (Law)laws[h], fanouts[h], seed, tags[h]});
  for (const Drawing& drawing : bulk.drawings)
    if (entries && drawing.keyed()) throw py::value_error("keyed draws have no positions");
  std::vector<Expanded> drawn(k);
  if (k > 0) {
    py::gil_scoped_release nogil;
    const bs_i64 each = most_vertices(seeds.size() / k + 1, fanouts, n);
    if (numbers_in_arrays(n, k, each, threads))
      bulk.expand_all<DenseNumbers>(drawn, n, each, threads);
    else
      bulk.expand_all<HashNumbers>(drawn, n, each / 4, threads);
  }
  py::list out;
  for (Expanded& one : drawn) {
    py::list hops;
    for (Hop& hop : one.hops)
      hops.append(py::make_tuple(hop.ends.release(), hop.columns.release(), entries ? py::object(hop.entries.release()) : py::none()));
    out.append(py::make_tuple(one.seed_rows.release(), one.vertices.release(), one.held, hops));
  }
  return out;
}

}  // namespace

void bind_hops(py::module_& m) {
  m.def("expand_tables", &expand_tables, py::arg("n"), py::arg("k"), py::arg("b"), py::arg("fanouts"), py::arg("vertices"), py::arg("threads"));
  m.def("expand", &expand, py::arg("n"), py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("values").noconvert(),
        py::arg("minibatches").noconvert(), py::arg("pointers").noconvert(), py::arg("seeds").noconvert(), py::arg("fanouts"),
        py::arg("laws"), py::arg("tags"), py::arg("seed"), py::arg("only_new"), py::arg("entries"),
        py::arg("threads"));
}

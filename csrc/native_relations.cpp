// Node-wise sampling in one call: a thread takes a minibatch through all its hops and relations, draws, reads and numbers the vertices of each
// type in one pass, and writes the arrays of its blocks in place. Rows of all trees of a minibatch are drawn together. If there are more
// threads than minibatches, a crew of them shares each minibatch of one tree. A plain graph has one type and one relation.
#include "native_crew.h"
#include "native_windows.h"

namespace {

// The numbers of (tree, vertex) within a minibatch of disjoint trees.
class PairNumbers {
 public:
  PairNumbers(bs_i64, bs_i64 expected) : bits_(bits_for(expected)), slots_(1ll << bits_) {}
  void foretell(bs_i32 tree, bs_i32 vertex) const { ::foretell(&slots_[home(key_of(tree, vertex))]); }
  void expect(bs_i64 vertices) {
    if (2 * vertices > (1ll << bits_)) grow(bits_for(2 * vertices));
  }
  bs_u32 number(bs_i32 tree, bs_i32 vertex, bs_u32 next) { return place(key_of(tree, vertex), next); }
  void forget(bs_i64 size) {
    base_ += (bs_u32)size;
    if (base_ < LAST_BASE) return;
    slots_.clear();
    base_ = 1;
  }

 private:
  struct Slot {
    bs_u64 key;
    bs_u32 number, unused;
  };
  static bs_u64 key_of(bs_i32 tree, bs_i32 vertex) { return (bs_u64)(bs_u32)tree << 32 | (bs_u32)vertex; }
  bs_i64 home(bs_u64 key) const { return (bs_i64)bs_pair_home(key, bits_); }
  bs_u32 place(bs_u64 key, bs_u32 next) {
    const bs_i64 mask = (1ll << bits_) - 1;
    for (bs_i64 at = home(key);; at = (at + 1) & mask) {
      Slot& slot = slots_[at];
      if (slot.number < base_) {
        slot = Slot{key, base_ + next, 0};
        return next;
      }
      if (slot.key == key) return slot.number - base_;
    }
  }
  void grow(int bits) {
    Zeros<Slot> old(1ll << bits);
    std::swap(old, slots_);
    const bs_i64 count = 1ll << bits_;
    bits_ = bits;
    for (bs_i64 at = 0; at < count; ++at)
      if (old[at].number >= base_) place(old[at].key, old[at].number - base_);
  }
  int bits_;
  Zeros<Slot> slots_;
  bs_u32 base_ = 1;
};

struct Relation {
  int source, destination;
  In<bs_i64> indptr;
  In<bs_i32> indices;
  std::optional<In<bs_i64>> values, timed;
  bool repeats;  // a row may hold a column twice
};

struct OfHop {  // how a relation draws in a hop
  Drawing drawing;
  Times times;
  bool timed;
};

struct HopRows {
  Buffer<bs_i64> ends;  // of the rows, 0 first
  Buffer<bs_i32> columns;
  Buffer<bs_i64> entries;  // positions in A, if asked for
};

struct TypePart {  // the part of a minibatch in one type
  Buffer<bs_i32> seed_rows, vertices, trees;
};

struct Expanded {
  std::vector<TypePart> types;
  std::vector<bs_i64> held;                // (hops + 1) x types, or hops x types if the last one is not numbered
  std::vector<std::vector<HopRows>> hops;  // one each, or one that all continue
};

// Turns columns into numbers of the type they belong to. In a minibatch of one tree the vertex decides.
template <class Numbers>
struct VertexSink {
  Numbers& numbers;
  Buffer<bs_i32>&columns, &vertices;
  void foretell(bs_i32 column) const { numbers.foretell(column); }
  void settle(bs_i64 first, bs_i64 last) { renumber(numbers, columns.data() + first, last - first, vertices); }
};

// In a minibatch of disjoint trees, the tree of the row and the vertex.
struct TreeSink {
  static constexpr bs_i64 SPARE = 8;  // entries behind `owners`
  PairNumbers& numbers;
  Buffer<bs_i32>& columns;
  TypePart& part;
  const Buffer<bs_i64>& ends;  // of the rows; `row` is the first that is not settled
  bs_i64 row;
  const bs_i32* trees;  // of the rows, from the first of the hop on
  bs_i64 first_row;     // the place of that row among `ends`
  std::vector<bs_i32> owners;
  void foretell(bs_i32) const {}
  void settle(bs_i64 first, bs_i64 last) {
    owners.resize((std::size_t)(last - first + SPARE));
    for (bs_i32* to = owners.data(); to < owners.data() + last - first; ++row) {
      const bs_i64 count = ends.data()[row + 1] - ends.data()[row];
      std::fill_n(to, SPARE, trees[row - first_row]);  // of a length that is known; rarely more
      if (count > SPARE) std::fill_n(to + SPARE, count - SPARE, trees[row - first_row]);
      to += count;
    }
    bs_i32* at = columns.data() + first;
    for (bs_i64 i = 0; i < last - first; ++i) numbers.foretell(owners[i], at[i]);
    number(numbers, owners.data(), at, last - first, part);
  }
  static void number(PairNumbers& numbers, const bs_i32* owners, bs_i32* columns, bs_i64 count, TypePart& part) {
    numbers.expect(part.vertices.size() + count);
    bs_i32 *vertex = part.vertices.room(count + 1), *tree = part.trees.room(count + 1);
    const bs_u32 before = (bs_u32)part.vertices.size();
    bs_u32 size = before;
    for (bs_i64 i = 0; i < count; ++i) {
      const bs_i32 column = columns[i];
      const bs_u32 given = numbers.number(owners[i], column, size);
      columns[i] = (bs_i32)given;
      vertex[size - before] = column, tree[size - before] = owners[i];  // stay only where new
      size += given == size;
    }
    part.vertices.add(size - before);
    part.trees.add(size - before);
  }
};

struct Bulk {
  std::vector<Relation> relations;
  std::vector<std::vector<OfHop>> laws;
  const bs_i64* tree_pointers;  // of the minibatches
  const bs_i64* names;          // of the trees
  const bs_i64 *starts, *ends;  // of the trees, or null
  std::vector<In<bs_i64>> seed_pointers;  // per type, of the minibatches
  std::vector<In<bs_i32>> seeds;
  std::vector<In<bs_i64>> seed_trees;  // per type; read where trees are disjoint
  bool only_new, disjoint, entries;
  bool numbered;  // the last hop is, too; otherwise its columns are vertices
  int crew;       // threads that share a minibatch

  template <class Numbers>
  void number_seeds(bs_i64 j, int t, Numbers& numbers, TypePart& part) const {
    const bs_i64 first = seed_pointers[t].data()[j], asked = seed_pointers[t].data()[j + 1] - first;
    std::copy_n(seeds[t].data() + first, asked, part.seed_rows.room(asked));
    part.seed_rows.add(asked);
    if constexpr (std::is_same_v<Numbers, PairNumbers>) {
      std::vector<bs_i32> owners((std::size_t)asked);
      for (bs_i64 i = 0; i < asked; ++i) owners[i] = (bs_i32)(seed_trees[t].data()[first + i] - tree_pointers[j]);
      TreeSink::number(numbers, owners.data(), part.seed_rows.data(), asked, part);
    } else {
      renumber(numbers, part.seed_rows.data(), asked, part.vertices);
    }
  }

  // Draws from rows of a frontier; `tree_of(r)` is the tree of a row, `name_of(r)` the name of that tree.
  template <class TreeOf, class NameOf, class Sink>
  void draw(const OfHop& law, const TypePart& frontier, bs_i64 first, bs_i64 rows, Buffer<bs_i64>* told, HopRows& hop, TreeOf tree_of,
            NameOf name_of, Sink& sink) const {
    auto vertex = [&](bs_i64 r) { return frontier.vertices[first + r]; };
    if (law.timed) {
      WindowFlight flight(law.drawing, law.times);
      auto row = [&](bs_i64 r) {
        const bs_i64 t = tree_of(r);
        return TimedRow{{vertex(r), vertex(r), name_of(r)}, starts ? starts[t] : 0, ends[t]};
      };
      flight.run(rows, vertex, row, hop.columns, told, hop.ends, sink);
    } else {
      RowFlight flight(law.drawing);
      flight.tell_entries(told);
      auto row = [&](bs_i64 r) { return Row{vertex(r), vertex(r), name_of(r)}; };
      flight.run(rows, vertex, row, hop.columns, hop.ends, sink);
    }
  }

  // Draws from rows of a frontier and numbers what they find.
  template <class Numbers>
  void draw_and_number(bs_i64 j, const OfHop& law, const TypePart& frontier, bs_i64 first, bs_i64 rows, Buffer<bs_i64>* told, HopRows& hop,
                       Numbers& numbers, TypePart& found) const {
    const bs_i64 tree = tree_pointers[j];
    if (law.drawing.fanout == 0) {
      for (bs_i64 r = 0; r < rows; ++r) hop.ends.push(hop.columns.size());
    } else if constexpr (std::is_same_v<Numbers, PairNumbers>) {
      const std::vector<bs_i32> trees(frontier.trees.data() + first, frontier.trees.data() + first + rows);  // a copy: the list may grow and move
      TreeSink sink{numbers, hop.columns, found, hop.ends, hop.ends.size() - 1, trees.data(), hop.ends.size() - 1, {}};
      auto tree_of = [&](bs_i64 r) { return tree + trees[r]; };
      draw(law, frontier, first, rows, told, hop, tree_of, [&](bs_i64 r) { return (bs_u32)names[tree_of(r)]; }, sink);
    } else if (crew > 1 && rows >= CrewHop<Numbers>::PAYS && !law.timed) {
      CrewHop<Numbers>(law.drawing, (bs_u32)names[tree], frontier.vertices.data() + first, rows, numbers, hop.columns, hop.ends, told, found.vertices)
          .run(crew);
    } else {
      VertexSink<Numbers> sink{numbers, hop.columns, found.vertices};
      draw(law, frontier, first, rows, told, hop, [tree](bs_i64) { return tree; }, [name = (bs_u32)names[tree]](bs_i64) { return name; }, sink);
    }
  }

  template <class Numbers>
  Expanded expand(bs_i64 j, std::vector<Numbers>& numbers) const {
    const int types = (int)seeds.size();
    Expanded out;
    out.types.resize(types);
    for (int t = 0; t < types; ++t) number_seeds(j, t, numbers[t], out.types[t]);
    auto hold = [&] {
      for (const TypePart& part : out.types) out.held.push_back(part.vertices.size());
    };
    hold();
    out.hops.resize(only_new ? 1 : laws.size());
    for (auto& of_hop : out.hops) {
      of_hop.resize(relations.size());
      for (HopRows& hop : of_hop) hop.ends.push(0);
    }
    for (std::size_t h = 0; h < laws.size(); ++h) {
      for (std::size_t r = 0; r < relations.size(); ++r) {
        const int source = relations[r].source, destination = relations[r].destination;
        HopRows& hop = out.hops[only_new ? 0 : h][r];
        const bs_i64* held = out.held.data() + (bs_i64)h * types;
        const bs_i64 first = only_new && h ? (held - types)[destination] : 0, rows = held[destination] - first;
        Buffer<bs_i64>* told = entries ? &hop.entries : nullptr;
        NoNumbers none;
        if (numbered || h + 1 < laws.size())
          draw_and_number(j, laws[h][r], out.types[destination], first, rows, told, hop, numbers[source], out.types[source]);
        else
          draw_and_number(j, laws[h][r], out.types[destination], first, rows, told, hop, none, out.types[source]);
      }
      if (numbered || h + 1 < laws.size()) hold();
    }
    for (int t = 0; t < types; ++t) numbers[t].forget(out.types[t].vertices.size());
    for (auto& of_hop : out.hops)
      for (HopRows& hop : of_hop) hop.ends.fit(), hop.columns.fit(), hop.entries.fit();
    for (TypePart& part : out.types) part.vertices.fit(), part.trees.fit();
    return out;
  }

  template <class Numbers>
  void expand_all(std::vector<Expanded>& out, const std::vector<bs_i64>& counts, bs_i64 expected, int threads) const {
    std::vector<std::vector<Numbers>> numbers(std::max(threads, 1));
    for_blocks((bs_i64)out.size(), 1, threads, [&](bs_i64 j, bs_i64, int place) {
      auto& own = numbers[place];
      if (own.empty())
        for (bs_i64 count : counts) own.emplace_back(count, std::is_same_v<Numbers, PairNumbers> ? expected : std::min(count, expected));
      out[j] = expand(j, own);
    });
  }
};

// Bounds the vertices that a minibatch of b seeds meets, up to `limit`, by the largest fanout of each hop; -1 finds n.
bs_i64 most_vertices(bs_i64 b, const std::vector<std::vector<bs_i64>>& fanouts, bs_i64 n, bs_i64 limit) {
  for (const auto& of_hop : fanouts) {
    bs_i64 most = 0;
    for (bs_i64 s : of_hop) most = std::max(most, s < 0 ? n : s);
    b = std::min(limit, b * (most + 1));
  }
  return b;
}

bool numbers_in_arrays(bs_i64 n, bs_i64 k, bs_i64 each, int threads) { return dense_pays(n, each * ((k + threads - 1) / threads)); }

// Bytes of the tables of `expand_relations` for k > 0 minibatches of b seeds that end with `vertices` vertices, of one type.
bs_i64 expand_tables(bs_i64 n, bs_i64 k, bs_i64 b, std::vector<bs_i64> fanouts, bs_i64 vertices, int threads) {
  std::vector<std::vector<bs_i64>> of_hops;
  for (bs_i64 s : fanouts) of_hops.push_back({s});
  const bs_i64 each = most_vertices(b + 1, of_hops, n, n), first = bits_for(each / 4);
  const bs_i64 slots = 1ll << (2 * vertices <= (1ll << first) ? first : bits_for(2 * vertices));
  return std::min<bs_i64>(k, threads) * (numbers_in_arrays(n, k, each, threads) ? 4 * n : (bs_i64)sizeof(BsSlot) * slots);
}

template <class T>
const T* data_of(const std::optional<In<T>>& array) {
  return array ? array->data() : nullptr;
}

using GivenRelation = std::tuple<int, int, In<bs_i64>, In<bs_i32>, std::optional<In<bs_i64>>, std::optional<In<bs_i64>>, bool>;
using GivenLaw = std::tuple<bs_i64, int, bs_u64, bs_u32>;  // fanout, law, seed, tag

py::list expand_relations(std::vector<bs_i64> counts, std::vector<GivenRelation> given, std::vector<std::vector<GivenLaw>> laws, In<bs_i64> tree_pointers,
                          In<bs_i64> names, std::optional<In<bs_i64>> starts, std::optional<In<bs_i64>> ends, std::vector<In<bs_i64>> seed_pointers,
                          std::vector<In<bs_i32>> seeds, std::vector<In<bs_i64>> seed_trees, bool only_new, bool disjoint, bool last, bool strict,
                          bool entries, bool numbered, int threads) {
  if (disjoint && !numbered) throw py::value_error("the last hop of disjoint trees is numbered");
  const bs_i64 k = tree_pointers.size() - 1;
  const int crew = (int)std::max<bs_i64>(1, threads / std::max<bs_i64>(k, 1));
  Bulk bulk{{}, {}, tree_pointers.data(), names.data(), data_of(starts), data_of(ends), seed_pointers, seeds, seed_trees, only_new, disjoint, entries, numbered, crew};
  for (auto& [source, destination, indptr, indices, values, timed, repeats] : given)
    bulk.relations.push_back({source, destination, indptr, indices, values, timed, repeats});
  std::vector<std::vector<bs_i64>> fanouts;
  for (const auto& of_hop : laws) {
    std::vector<OfHop> row;
    fanouts.emplace_back();
    for (std::size_t r = 0; r < of_hop.size(); ++r) {
      const Relation& relation = bulk.relations[r];
      const auto& [fanout, law, seed, tag] = of_hop[r];
      fanouts.back().push_back(fanout);
      const bool timed = relation.timed && ends;
      const Drawing drawing{relation.indptr.data(), relation.indices.data(), data_of(relation.values), (Law)law, fanout, seed, tag, relation.repeats};
      row.push_back({drawing, Times{reinterpret_cast<const BsTimed*>(data_of(relation.timed)), (bool)starts, strict, last}, timed});
    }
    bulk.laws.push_back(std::move(row));
  }
  bs_i64 total = 0, asked = 0;
  for (bs_i64 count : counts) total += count;
  for (const auto& list : seeds) asked += list.size();
  const bs_i64 each = most_vertices(k ? asked / k + 1 : 1, fanouts, total, disjoint ? bs_i64{1} << 22 : total);  // trees may hold a vertex each
  std::vector<Expanded> drawn(k);
  {
    py::gil_scoped_release nogil;
    if (disjoint)
      bulk.expand_all<PairNumbers>(drawn, counts, each / 8, threads);
    else if (numbers_in_arrays(total, k, each, threads))
      bulk.expand_all<DenseNumbers>(drawn, counts, each, threads);
    else
      bulk.expand_all<HashNumbers>(drawn, counts, each / 4, threads);
  }
  py::list out;
  for (Expanded& one : drawn) {
    py::list types, hops;
    for (TypePart& part : one.types)
      types.append(py::make_tuple(part.seed_rows.release(), part.vertices.release(), disjoint ? py::object(part.trees.release()) : py::none()));
    for (auto& of_hop : one.hops) {
      py::list parts;
      for (HopRows& hop : of_hop)
        parts.append(py::make_tuple(hop.ends.release(), hop.columns.release(), entries ? py::object(hop.entries.release()) : py::none()));
      hops.append(parts);
    }
    out.append(py::make_tuple(types, one.held, hops));
  }
  return out;
}

}  // namespace

void bind_relations(py::module_& m) {
  m.def("expand_tables", &expand_tables, py::arg("n"), py::arg("k"), py::arg("b"), py::arg("fanouts"), py::arg("vertices"), py::arg("threads"));
  m.def("expand_relations", &expand_relations, py::arg("counts"), py::arg("relations"), py::arg("laws"), py::arg("tree_pointers").noconvert(),
        py::arg("names").noconvert(), py::arg("starts").noconvert(), py::arg("ends").noconvert(), py::arg("seed_pointers"), py::arg("seeds"),
        py::arg("seed_trees"), py::arg("only_new"), py::arg("disjoint"), py::arg("last"), py::arg("strict"), py::arg("entries"),
        py::arg("numbered"), py::arg("threads"));
}

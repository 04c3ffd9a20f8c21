// The numbers of what the trees of minibatches hold: a vertex counts once in each tree and, where windows of time move, once for each end.
#include "native_numbers.h"

namespace {

struct TreeVertices {
  const bs_i32* vertices;
  const bs_i64 *trees, *ends;  // ends or null
};

struct Held {  // by one minibatch
  Buffer<bs_i32> vertices;
  Buffer<bs_i64> trees, ends;
};

// A hash table of positions in what a minibatch holds, at most half full.
class TreeNumbers {
 public:
  TreeNumbers(Held& held, bool ends, bs_i64 most) : held_(held), ends_(ends), bits_(bits_for(most)), slots_((std::size_t)1 << bits_, bs_free) {}

  // The number of entry i of `given`; held from now on if it is new.
  bs_u32 number(const TreeVertices& given, bs_i64 i) {
    const bs_i32 vertex = given.vertices[i];
    const bs_i64 tree = given.trees[i], end = ends_ ? given.ends[i] : 0;
    const bs_u64 mask = ((bs_u64)1 << bits_) - 1, mixed = ((bs_u64)tree << 32 | (bs_u32)vertex) + (bs_u64)end * 0xD6E8FEB86659FD93ull;
    for (bs_u64 at = bs_pair_home(mixed, bits_);; at = (at + 1) & mask) {
      const bs_u32 found = slots_[at];
      if (found == bs_free) {
        const bs_u32 next = slots_[at] = (bs_u32)held_.vertices.size();
        held_.vertices.push(vertex), held_.trees.push(tree);
        if (ends_) held_.ends.push(end);
        return next;
      }
      if (held_.vertices[found] == vertex && held_.trees[found] == tree && (!ends_ || held_.ends[found] == end)) return found;
    }
  }

 private:
  Held& held_;
  const bool ends_;
  const int bits_;
  std::vector<bs_u32> slots_;
};

py::tuple relabel_trees(In<bs_i64> pointers, In<bs_i32> held_vertices, In<bs_i64> held_trees, std::optional<In<bs_i64>> held_ends,
                        In<bs_i32> found_vertices, In<bs_i64> found_trees, std::optional<In<bs_i64>> found_ends, In<bs_i64> tree_pointers,
                        int threads) {
  const bs_i64 k = pointers.size() - 1, count = found_vertices.size();
  const bool ends = held_ends && found_ends;
  const TreeVertices known{held_vertices.data(), held_trees.data(), ends ? held_ends->data() : nullptr};
  const TreeVertices found{found_vertices.data(), found_trees.data(), ends ? found_ends->data() : nullptr};
  const bs_i64 *part = pointers.data(), *first_tree = tree_pointers.data();
  py::array_t<bs_i32> local(count);
  py::array_t<bs_i64> out_pointers(k + 1);
  bs_i32* number = local.mutable_data();
  bs_i64* extended = out_pointers.mutable_data();
  std::vector<Held> held(k);
  auto first_found = [&](bs_i64 j) {  // entries lie minibatch by minibatch, their trees in any order within one
    return std::partition_point(found.trees, found.trees + count, [&](bs_i64 tree) { return tree < first_tree[j]; }) - found.trees;
  };
  {
    py::gil_scoped_release nogil;
    extended[0] = 0;
    for_blocks(k, 1, threads, [&](bs_i64 j, bs_i64) {
      const bs_i64 first = first_found(j), last = first_found(j + 1), size = part[j + 1] - part[j];
      TreeNumbers numbers(held[j], ends, size + last - first);
      for (bs_i64 i = part[j]; i < part[j + 1]; ++i) numbers.number(known, i);
      for (bs_i64 i = first; i < last; ++i) number[i] = (bs_i32)numbers.number(found, i);
      extended[j + 1] = held[j].vertices.size();
    });
    counts_to_pointers(extended, k);
  }
  py::array_t<bs_i32> vertices(extended[k]);
  py::array_t<bs_i64> trees(extended[k]);
  std::optional<py::array_t<bs_i64>> until;
  if (ends) until.emplace(extended[k]);
  for (bs_i64 j = 0; j < k; ++j) {
    const bs_i64 size = held[j].vertices.size();
    std::copy_n(held[j].vertices.data(), size, vertices.mutable_data() + extended[j]);
    std::copy_n(held[j].trees.data(), size, trees.mutable_data() + extended[j]);
    if (until) std::copy_n(held[j].ends.data(), size, until->mutable_data() + extended[j]);
  }
  return py::make_tuple(out_pointers, vertices, trees, until, local);
}

}  // namespace

void bind_trees(py::module_& m) {
  m.def("relabel_trees", &relabel_trees, py::arg("pointers").noconvert(), py::arg("held_vertices").noconvert(), py::arg("held_trees").noconvert(),
        py::arg("held_ends").noconvert(), py::arg("found_vertices").noconvert(), py::arg("found_trees").noconvert(),
        py::arg("found_ends").noconvert(), py::arg("tree_pointers").noconvert(), py::arg("threads"));
}

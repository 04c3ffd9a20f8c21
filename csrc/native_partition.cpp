// Restreamed linear deterministic greedy (LDG) partitioning with several loads. The graph is read in row order, once in each pass; memory
// is one part number for each vertex and a few words for each part. All arithmetic is on integers, so every machine gives the same parts.
#include <array>

#include "native.h"

namespace {

constexpr int LOADS = 3;  // vertices, entries, training vertices
constexpr bs_i64 ONE = 1 << 30;
using Weight = std::array<bs_i64, LOADS>;

// The parts, their loads, and for each load a tournament that knows the part with the least of it; a change takes O(log parts).
struct Parts {
  const bs_i64 count;
  const bs_i64* caps = nullptr;
  std::vector<Weight> load;
  std::vector<bs_i64> room;
  bs_i64 leaves = 1;
  std::vector<bs_i32> least[LOADS];

  explicit Parts(bs_i64 count) : count(count), load(count), room(count) {
    while (leaves < count) leaves *= 2;
    for (int k = 0; k < LOADS; ++k) {
      least[k].assign(2 * leaves, -1);
      for (bs_i64 q = 0; q < count; ++q) least[k][leaves + q] = (bs_i32)q;
      for (bs_i64 i = leaves - 1; i > 0; --i) play(k, i);
    }
  }

  void play(int k, bs_i64 i) {
    const bs_i32 a = least[k][2 * i], b = least[k][2 * i + 1];
    least[k][i] = b < 0 || load[a][k] <= load[b][k] ? a : b;
  }

  void begin(const bs_i64* caps_of_pass) {
    caps = caps_of_pass;
    for (bs_i64 q = 0; q < count; ++q) measure(q);
  }

  // room = min over loads of 1 - load / cap, in units of 2^-30 rounded down, at least 0
  void measure(bs_i64 q) {
    room[q] = ONE;
    for (int k = 0; k < LOADS; ++k)
      if (caps[k] > 0) room[q] = std::min(room[q], (bs_i64)((__int128)std::max<bs_i64>(caps[k] - load[q][k], 0) * ONE / caps[k]));
  }

  void add(bs_i64 q, const Weight& weight, int sign) {
    for (int k = 0; k < LOADS; ++k) {
      if (!weight[k]) continue;
      load[q][k] += sign * weight[k];
      for (bs_i64 i = (leaves + q) / 2; i > 0; i /= 2) play(k, i);
    }
    measure(q);
  }

  bool fits(bs_i64 q, const Weight& weight) const {
    for (int k = 0; k < LOADS; ++k)
      if (weight[k] > 0 && load[q][k] + weight[k] > caps[k]) return false;
    return true;
  }

  // The part with the least of the load of which the vertex is the largest share of a cap.
  bs_i32 emptiest(const Weight& weight) const {
    int most = 0;
    for (int k = 1; k < LOADS; ++k)
      if (caps[k] > 0 && (__int128)weight[k] * caps[most] > (__int128)weight[most] * caps[k]) most = k;
    return least[most][1];
  }
};

// Vertex by vertex: the part with the most neighbours times its room, among the parts that the vertex fits; else the emptiest.
void stream(const bs_i64* indptr, const bs_i32* indices, bs_i64 n, const bool* train, Parts& parts, bs_i32* assignment) {
  std::vector<bs_i64> neighbours(parts.count);
  std::vector<bs_i32> touched;
  for (bs_i64 v = 0; v < n; ++v) {
    const Weight weight{1, indptr[v + 1] - indptr[v], train && train[v]};
    if (assignment[v] >= 0) parts.add(assignment[v], weight, -1);
    for (bs_i64 e = indptr[v]; e < indptr[v + 1]; ++e) {
      const bs_i32 q = assignment[indices[e]];
      if (q >= 0 && indices[e] != v && neighbours[q]++ == 0) touched.push_back(q);
    }
    bs_i32 chosen = -1;
    bs_i64 most = 0;
    for (const bs_i32 q : touched) {
      const bs_i64 score = neighbours[q] * parts.room[q];
      const bool tie = chosen >= 0 && score == most;
      const bool wins = tie ? parts.room[q] > parts.room[chosen] || (parts.room[q] == parts.room[chosen] && q < chosen) : score > most;
      if (wins && parts.fits(q, weight)) chosen = q, most = score;
      neighbours[q] = 0;
    }
    touched.clear();
    assignment[v] = chosen < 0 ? parts.emptiest(weight) : chosen;
    parts.add(assignment[v], weight, 1);
  }
}

py::array_t<bs_i32> stream_parts(In<bs_i64> indptr, In<bs_i32> indices, std::optional<In<bool>> train, In<bs_i64> caps, bs_i64 count) {
  const bs_i64 n = indptr.size() - 1;
  if (n < 0 || count < 1 || caps.ndim() != 2 || caps.shape(1) != LOADS || (train && train->size() != n))
    throw std::invalid_argument("stream_parts: the arrays do not fit each other");
  py::array_t<bs_i32> made(n);
  bs_i32* assignment = made.mutable_data();
  const bs_i64 *pointers = indptr.data(), *most = caps.data(), passes = caps.shape(0);
  const bs_i32* columns = indices.data();
  const bool* mask = train ? train->data() : nullptr;
  py::gil_scoped_release released;
  std::fill_n(assignment, n, -1);
  Parts parts(count);
  for (bs_i64 pass = 0; pass < passes; ++pass) {
    parts.begin(most + pass * LOADS);
    stream(pointers, columns, n, mask, parts, assignment);
  }
  return made;
}

}  // namespace

void bind_partition(py::module_& m) {
  m.def("stream_parts", &stream_parts, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("train").noconvert(),
        py::arg("caps").noconvert(), py::arg("parts"));
}

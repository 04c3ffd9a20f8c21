// Column sums of rows of A, exact, for one minibatch: the row of Q A from which a layer-wise sampler draws.
#pragma once
#include "native_numbers.h"

// Sums by vertex: an array over all n, or a hash table over the vertices that occur. A sum of 0 marks a free place.
class DenseSums {
 public:
  static constexpr bool WHOLE = true;  // may be read from end to end
  DenseSums(bs_i64 n, bs_i64) : sums_(n) {}
  void foretell(bs_i32 column) const { ::foretell(&sums_[column]); }
  void expect(bs_i64, Buffer<bs_u32>&) {}
  bs_u32 place(bs_i32 column) const { return (bs_u32)column; }
  bs_i32 column(bs_u32 place) const { return (bs_i32)place; }
  bs_i64& sum(bs_u32 place) { return sums_[place]; }
  void take(bs_u32, bs_i32) {}
  void clear() { sums_.clear(); }

 private:
  Zeros<bs_i64> sums_;
};

class HashSums {
 public:
  static constexpr bool WHOLE = false;
  HashSums(bs_i64, bs_i64 expected) : bits_(bits_for(expected)), slots_(1ll << bits_) {}
  void foretell(bs_i32 column) const { ::foretell(&slots_[(bs_i64)bs_home((bs_u32)column, bits_)]); }
  // Makes room for that many sums, at most half full; `used` are the places in use, which may move.
  void expect(bs_i64 sums, Buffer<bs_u32>& used) {
    if (2 * sums <= (1ll << bits_)) return;
    HashSums larger(0, 2 * sums);
    for (bs_i64 i = 0; i < used.size(); ++i) {
      const Slot slot = slots_[used[i]];
      used[i] = larger.place(slot.column);
      larger.slots_[used[i]] = slot;
    }
    std::swap(bits_, larger.bits_);
    std::swap(slots_, larger.slots_);
  }
  bs_u32 place(bs_i32 column) const {
    const bs_u64 mask = (1ull << bits_) - 1;
    bs_u64 at = bs_home((bs_u32)column, bits_);
    while (slots_[(bs_i64)at].sum != 0 && slots_[(bs_i64)at].column != column) at = (at + 1) & mask;
    return (bs_u32)at;
  }
  bs_i32 column(bs_u32 place) const { return slots_[place].column; }
  bs_i64& sum(bs_u32 place) { return slots_[place].sum; }
  void take(bs_u32 place, bs_i32 column) { slots_[place].column = column; }
  void clear() { slots_.clear(); }

 private:
  struct Slot {
    bs_i64 sum;
    bs_i32 column;
  };
  int bits_;
  Zeros<Slot> slots_;
};

constexpr bs_i64 FAR = 256;  // columns of a long row that are prefetched

// Rows on their way: pointers first, then the first columns.
inline void foretell_row(const bs_i64* indptr, const bs_i32* indices, const bs_i32* vertices, bs_i64 r, bs_i64 last) {
  if (r + 16 < last) foretell(&indptr[vertices[r + 16]]);
  if (r + 6 >= last) return;
  const bs_i64 *ends = indptr + vertices[r + 6], lines = std::min<bs_i64>(8, (ends[1] - ends[0]) / 16);
  for (bs_i64 line = 0; line <= lines; ++line) foretell(indices + ends[0] + 16 * line);
}

// The sums of rows of A by column, and a list of the columns that have one; no list if so many are expected that the array is read whole.
template <class Sums>
class ColumnSums {
 public:
  ColumnSums(bs_i64 n, bs_i64 expected) : n_(n), sums_(n, expected) {}
  // Adds the rows of `vertices`, each times its factor; `values` and `factors` may be null: ones.
  void add_rows(const bs_i64* indptr, const bs_i32* indices, const bs_i64* values, const bs_i64* factors, const std::vector<bs_i32>& vertices) {
    for (bs_i32 v : vertices) entries_ += indptr[v + 1] - indptr[v];
    listed_ = listed_ && !(Sums::WHOLE && entries_ >= n_ / 8);
    const bs_i64 rows = (bs_i64)vertices.size();
    for (bs_i64 r = 0; r < rows; ++r) {
      foretell_row(indptr, indices, vertices.data(), r, rows);
      const bs_i64 v = vertices[r], start = indptr[v], count = indptr[v + 1] - start, next = r + 1 < rows ? vertices[r + 1] : v;
      if (r == 0) foretell_sums(indices + start, count);
      const Row row{indices + start, values ? values + start : nullptr, factors ? factors[v] : 1, count};
      if (listed_)
        add<true>(row);
      else
        add<false>(row);
      foretell_sums(indices + indptr[next], indptr[next + 1] - indptr[next]);
    }
  }
  // visit(columns, weights, count) for the columns that have a sum, some at a time; a weight is the sum or its square.
  template <class Visit>
  void each(bool squared, Visit visit) {
    constexpr bs_i64 TOGETHER = 1024;
    bs_u32 places[TOGETHER];
    bs_i32 columns[TOGETHER];
    double weights[TOGETHER];
    const bs_i64 most = listed_ ? used_.size() : n_;
    for (bs_i64 first = 0; first < most; first += TOGETHER) {
      const bs_i64 last = std::min(first + TOGETHER, most), count = listed_ ? listed(first, last, places) : whole(first, last, places);
      for (bs_i64 i = 0; i < count; ++i) {
        columns[i] = sums_.column(places[i]);
        weights[i] = weight(sums_.sum(places[i]), squared);
      }
      visit(columns, weights, count);
    }
  }
  double weight_of(bs_i32 column, bool squared) { return weight(sums_.sum(sums_.place(column)), squared); }
  void clear() {
    if (!listed_) sums_.clear();
    for (bs_i64 i = 0; i < used_.size(); ++i) sums_.sum(used_[i]) = 0;
    used_.add(-used_.size());
    entries_ = 0;
    listed_ = true;
  }

 private:
  static constexpr bs_i64 AHEAD = 64, LINE = 16;  // columns; how many there are in a cache line
  struct Row {
    const bs_i32* columns;
    const bs_i64* values;
    bs_i64 factor, count;
  };
  static double weight(bs_i64 sum, bool squared) { return squared ? (double)sum * (double)sum : (double)sum; }
  bs_i64 listed(bs_i64 first, bs_i64 last, bs_u32* places) {
    std::copy(&used_[first], &used_[first] + (last - first), places);
    for (bs_i64 i = 0; i < last - first; ++i) foretell(&sums_.sum(places[i]));
    return last - first;
  }
  bs_i64 whole(bs_i64 first, bs_i64 last, bs_u32* places) {
    bs_i64 count = 0;
    for (bs_i64 i = first; i < last; ++i) {
      places[count] = (bs_u32)i;  // stays only where there is a sum
      count += sums_.sum((bs_u32)i) != 0;
    }
    return count;
  }
  void foretell_sums(const bs_i32* columns, bs_i64 count) const {
    for (bs_i64 i = 0; i < std::min(count, AHEAD); ++i) sums_.foretell(columns[i]);
  }
  template <bool LISTED>
  void add(const Row& row) {
    sums_.expect(used_.size() + row.count, used_);
    bs_u32* next = used_.room(LISTED ? row.count + 1 : 0);
    bs_i64 fresh = 0, i = 0;
    auto add_one = [&](bs_i64 i) {
      const bs_u32 place = sums_.place(row.columns[i]);
      bs_i64& sum = sums_.sum(place);
      const bs_i64 before = sum, after = before + (row.values ? row.factor * row.values[i] : row.factor);
      sum = after;
      if (!LISTED) return;
      sums_.take(place, row.columns[i]);
      next[fresh] = place;  // stays only where the sum is new
      fresh += (before == 0) & (after != 0);
    };
    for (; i + AHEAD + LINE <= row.count; i += LINE) {
      foretell(row.columns + i + FAR);
      for (bs_i64 j = i; j < i + LINE; ++j) {
        sums_.foretell(row.columns[j + AHEAD]);
        add_one(j);
      }
    }
    for (; i < row.count; ++i) {
      if (i + AHEAD < row.count) sums_.foretell(row.columns[i + AHEAD]);
      add_one(i);
    }
    used_.add(fresh);
  }

  const bs_i64 n_;
  bs_i64 entries_ = 0;  // that were added
  bool listed_ = true;
  Sums sums_;
  Buffer<bs_u32> used_;
};

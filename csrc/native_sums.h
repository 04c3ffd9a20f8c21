// Column sums of rows of A, exact, for one minibatch: the row of Q A from which a layer-wise sampler draws.
#pragma once
#include "native_numbers.h"

// Sums by vertex: an array over all n, or a hash table over those that occur. A sum of 0 is a place that is free.
class DenseSums {
 public:
  DenseSums(bs_i64 n, bs_i64) : sums_(n) {}
  void foretell(bs_i32 column) const { __builtin_prefetch(&sums_[column], 1, 3); }
  void expect(bs_i64, Buffer<bs_u32>&) {}
  bs_u32 place(bs_i32 column) const { return (bs_u32)column; }
  bs_i32 column(bs_u32 place) const { return (bs_i32)place; }
  bs_i64& sum(bs_u32 place) { return sums_[place]; }
  void take(bs_u32, bs_i32) {}

 private:
  Zeros<bs_i64> sums_;
};

class HashSums {
 public:
  HashSums(bs_i64, bs_i64 expected) : bits_(bits_for(expected)), slots_(1ll << bits_) {}
  void foretell(bs_i32 column) const { __builtin_prefetch(&slots_[(bs_i64)bs_home((bs_u32)column, bits_)], 1, 3); }
  // Room for that many sums, at most half full; `used` are the places in use, which may move.
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

 private:
  struct Slot {
    bs_i64 sum;
    bs_i32 column;
  };
  int bits_;
  Zeros<Slot> slots_;
};

// The sums of rows of A by column.
template <class Sums>
class ColumnSums {
 public:
  ColumnSums(bs_i64 n, bs_i64 expected) : sums_(n, expected) {}
  void add(const bs_i32* columns, const bs_i64* values, bs_i64 factor, bs_i64 count) {
    constexpr bs_i64 AHEAD = 24;
    sums_.expect(used_.size() + count, used_);
    bs_u32* next = used_.room(count + 1);
    bs_i64 fresh = 0;
    for (bs_i64 i = 0; i < std::min(count, AHEAD); ++i) sums_.foretell(columns[i]);
    for (bs_i64 i = 0; i < count; ++i) {
      if (i + AHEAD < count) sums_.foretell(columns[i + AHEAD]);
      const bs_u32 place = sums_.place(columns[i]);
      bs_i64& sum = sums_.sum(place);
      const bs_i64 before = sum, after = before + (values ? factor * values[i] : factor);
      sum = after;
      sums_.take(place, columns[i]);
      next[fresh] = place;  // stays only where the sum is new
      fresh += (before == 0) & (after != 0);
    }
    used_.add(fresh);
  }
  // The columns that have a sum, and their sums as weights of a race.
  void list(bool squared, std::vector<bs_i32>& columns, std::vector<double>& weights) {
    constexpr bs_i64 AHEAD = 16;
    const bs_i64 count = used_.size();
    columns.resize(count);
    weights.resize(count);
    for (bs_i64 i = 0; i < count; ++i) {
      if (i + AHEAD < count) __builtin_prefetch(&sums_.sum(used_[i + AHEAD]));
      columns[i] = sums_.column(used_[i]);
      const double sum = (double)sums_.sum(used_[i]);
      weights[i] = squared ? sum * sum : sum;
    }
  }
  void clear() {
    for (bs_i64 i = 0; i < used_.size(); ++i) sums_.sum(used_[i]) = 0;
    used_.add(-used_.size());
  }

 private:
  Sums sums_;
  Buffer<bs_u32> used_;
};

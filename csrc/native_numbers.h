// The numbers of vertices within a minibatch, in order of first occurrence. Two structures give the same numbers: an array
// over all n vertices, and a hash table over those that occur. An entry below `base` belongs to an earlier minibatch, so
// the next one starts by moving `base`, and nothing is cleared.
#pragma once
#include "hash_row.h"
#include "native_memory.h"

constexpr bs_u32 LAST_BASE = 1u << 31;  // numbers are below 2^31, so base + number fits

inline int bits_for(bs_i64 entries) {  // a table at most half full
  int bits = 4;
  while ((1ll << bits) < 2 * entries) ++bits;
  return bits;
}

class DenseNumbers {
 public:
  DenseNumbers(bs_i64 n, bs_i64) : entries_(n) {}
  void foretell(bs_i32 vertex) const { ::foretell(&entries_[vertex]); }
  void expect(bs_i64) {}
  // The number of `vertex`; `next` if it is new. Written in both cases: a branch would be mispredicted half the time.
  bs_u32 number(bs_i32 vertex, bs_u32 next) {
    const bs_u32 entry = entries_[vertex], given = entry >= base_ ? entry - base_ : next;
    entries_[vertex] = base_ + given;
    return given;
  }
  void forget(bs_i64 size) {
    base_ += (bs_u32)size;
    if (base_ < LAST_BASE) return;
    entries_.clear();
    base_ = 1;
  }

 private:
  Zeros<bs_u32> entries_;
  bs_u32 base_ = 1;
};

class HashNumbers {
 public:
  HashNumbers(bs_i64, bs_i64 expected) : bits_(bits_for(expected)), slots_(1ll << bits_) {}
  void foretell(bs_i32 vertex) const { ::foretell(&slots_[(bs_i64)bs_home((bs_u32)vertex, bits_)]); }
  // Room for a minibatch of that many vertices, at most half full.
  void expect(bs_i64 vertices) {
    if (2 * vertices > (1ll << bits_)) grow(bits_for(2 * vertices));
  }
  bs_u32 number(bs_i32 vertex, bs_u32 next) {
    const bs_u64 mask = (1ull << bits_) - 1;
    for (bs_u64 at = bs_home((bs_u32)vertex, bits_);; at = (at + 1) & mask) {
      BsSlot& slot = slots_[(bs_i64)at];
      if (slot.number < base_) {
        slot = BsSlot{(bs_u32)vertex, base_ + next};
        return next;
      }
      if (slot.vertex == (bs_u32)vertex) return slot.number - base_;
    }
  }
  void forget(bs_i64 size) {
    base_ += (bs_u32)size;
    if (base_ < LAST_BASE) return;
    slots_.clear();
    base_ = 1;
  }

 private:
  void grow(int bits) {
    HashNumbers larger(Bits{bits}, base_);
    for (bs_i64 at = 0; at < (1ll << bits_); ++at)
      if (slots_[at].number >= base_) larger.number((bs_i32)slots_[at].vertex, slots_[at].number - base_);
    std::swap(bits_, larger.bits_);
    std::swap(slots_, larger.slots_);
  }
  struct Bits {
    int count;
  };
  HashNumbers(Bits bits, bs_u32 base) : bits_(bits.count), slots_(1ll << bits.count), base_(base) {}
  int bits_;
  Zeros<BsSlot> slots_;
  bs_u32 base_ = 1;
};

// The array costs 4 n bytes of zeros and colder memory; a table costs its probes. Measured, they break even if `met`, a bound on
// the vertices that a thread numbers, is an eighth of n.
inline bool dense_pays(bs_i64 n, bs_i64 met) { return n / 8 <= met; }

// Turns vertices into their numbers, in place, and appends new ones to `vertices`.
template <class Numbers>
void renumber(Numbers& numbers, bs_i32* columns, bs_i64 count, Buffer<bs_i32>& vertices) {
  numbers.expect(vertices.size() + count);
  bs_i32* end = vertices.room(count + 1);
  const bs_u32 before = (bs_u32)vertices.size();
  bs_u32 size = before;
  for (bs_i64 i = 0; i < count; ++i) {
    const bs_i32 vertex = columns[i];
    const bs_u32 number = numbers.number(vertex, size);
    columns[i] = (bs_i32)number;
    end[size - before] = vertex;  // stays only where it is new
    size += number == size;
  }
  vertices.add(size - before);
}

// Leaves vertices as they are.
struct NoNumbers {
  void foretell(bs_i32) const {}
};
inline void renumber(NoNumbers&, bs_i32*, bs_i64, Buffer<bs_i32>&) {}

// Hash tables over the vertices of one minibatch: find a vertex, or give it the next number.
// Numbers follow the order of insertion, which callers define (first occurrence).
#pragma once
#include "host_device.h"

BS_TABLE bs_u32 bs_free = 0xFFFFFFFFu;  // no vertex: columns are below 2^31

struct BsSlot {
  bs_u32 vertex, number;
};

BS_HD bs_u64 bs_pair_home(bs_u64 pair, int bits) { return pair * 0x9E3779B97F4A7C15ull >> (64 - bits); }
BS_HD bs_u64 bs_home(bs_u32 vertex, int bits) { return bs_pair_home(vertex, bits); }

// The number of `vertex` in a table of 2^bits slots; a new vertex is entered as `next`.
BS_HD bs_u32 bs_find_or_insert(BsSlot* table, int bits, bs_u32 vertex, bs_u32 next) {
  const bs_u64 mask = (1ull << bits) - 1;
  for (bs_u64 at = bs_home(vertex, bits);; at = (at + 1) & mask) {
    if (table[at].vertex == vertex) return table[at].number;
    if (table[at].vertex == bs_free) {
      table[at] = BsSlot{vertex, next};
      return next;
    }
  }
}

// The number of `vertex`, or bs_free if the table does not hold it.
BS_HD bs_u32 bs_find(const BsSlot* table, int bits, bs_u32 vertex) {
  const bs_u64 mask = (1ull << bits) - 1;
  for (bs_u64 at = bs_home(vertex, bits);; at = (at + 1) & mask) {
    if (table[at].vertex == vertex) return table[at].number;
    if (table[at].vertex == bs_free) return bs_free;
  }
}

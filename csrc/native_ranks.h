// A set of vertices as a bitmap with ranks: a bit for each vertex, and for each word of bits the number of members before it. A test of a
// vertex reads n / 8 bytes at random, most of them in a near cache; the number of a member is its rank in ascending order.
#pragma once
#include "native_memory.h"

// Finds the entries of a row that are members, and their ranks; returns how many. Writes one entry beyond them.
bs_i64 meet_members(const bs_u64* bits, const bs_u32* ranks, const bs_i32* row, bs_i64 degree, bs_i32* at, bs_u32* members);

class Ranks {
 public:
  explicit Ranks(bs_i64 n) : bits_((n >> 6) + 1), ranks_((n >> 6) + 1) {}
  // Sets the members, ascending, in place of the former ones; ranks are valid only for words with a bit.
  void set(std::vector<bs_i32> members) {
    for (bs_i32 vertex : members_) bits_[vertex >> 6] = 0;
    members_ = std::move(members);
    for (std::size_t i = 0; i < members_.size(); ++i) {
      bs_u64& word = bits_[members_[i] >> 6];
      if (word == 0) ranks_[members_[i] >> 6] = (bs_u32)i;
      word |= 1ull << ((bs_u32)members_[i] & 63u);
    }
  }
  const std::vector<bs_i32>& members() const { return members_; }
  // Finds the positions of members in a row, ascending, and their ranks.
  bs_i64 meet(const bs_i32* row, bs_i64 degree, bs_i32* at, bs_u32* members) const {
    constexpr bs_i64 SEARCH = 128;  // entries read in the time of one search
    if ((bs_i64)members_.size() * SEARCH >= degree) return meet_members(&bits_[0], &ranks_[0], row, degree, at, members);
    bs_i64 count = 0;
    const bs_i32 *from = row, *end = row + degree;
    for (std::size_t i = 0; i < members_.size() && from != end; ++i) {
      from = std::lower_bound(from, end, members_[i]);
      if (from == end || *from != members_[i]) continue;
      at[count] = (bs_i32)(from - row);
      members[count++] = (bs_u32)i;
    }
    return count;
  }

 private:
  Zeros<bs_u64> bits_;
  Zeros<bs_u32> ranks_;
  std::vector<bs_i32> members_;
};

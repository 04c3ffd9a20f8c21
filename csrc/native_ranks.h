// A set of vertices as a bitmap with ranks: a bit for each vertex, and for each word of bits how many members stand before it. A vertex
// outside costs one look at n / 8 bytes, most of them in a nearby cache, and a member's number is its rank in ascending order.
#pragma once
#include "native_memory.h"

// Which entries of a row are members, and their ranks; returns how many. Room for one more than that is written to.
bs_i64 meet_members(const bs_u64* bits, const bs_u32* ranks, const bs_i32* row, bs_i64 degree, bs_i32* at, bs_u32* members);

class Ranks {
 public:
  explicit Ranks(bs_i64 n) : bits_((n >> 6) + 1), ranks_((n >> 6) + 1) {}
  // The members, ascending; those before are forgotten, and ranks only hold where there is a bit.
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
  // Where in a row members stand, ascending, and which they are.
  bs_i64 meet(const bs_i32* row, bs_i64 degree, bs_i32* at, bs_u32* members) const {
    constexpr bs_i64 SEARCH = 128;  // entries that are looked at in the time of one search
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

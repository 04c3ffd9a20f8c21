// Windows of time of a row that lies sorted by time: positions [low, high), found by binary search, and what a draw takes of them.
#pragma once
#include "laws.h"

struct BsTimed {  // an entry of a row, in the order of time
  bs_i64 time;
  bs_i32 position, column;  // where it stands in the row of A, and its column
};

// The search for the first position whose time is not below a wanted one, or above it (`after_equal`); `low` in the end.
struct BsBisection {
  bs_i64 low, high;
  BS_HD bool open() const { return low < high; }
  BS_HD bs_i64 middle() const { return (low + high) / 2; }
  BS_HD void narrow(bs_i64 time, bs_i64 wanted, bool after_equal) {
    const bs_i64 at = middle();
    if (after_equal ? time <= wanted : time < wanted) low = at + 1; else high = at;
  }
};

BS_HD bs_i64 bs_bisect(const BsTimed* row, bs_i64 count, bs_i64 wanted, bool after_equal) {
  BsBisection search{0, count};
  while (search.open()) search.narrow(row[search.middle()].time, wanted, after_equal);
  return search.low;
}

// The candidates of a draw from the window [low, high) of a row of `degree`.
struct BsCandidates {
  bs_i64 low, length;
  bool all;       // it takes them all
  bool in_order;  // they are the whole row, taken in the order of the adjacency; else positions in the order of time
};

BS_HD BsCandidates bs_candidates(bs_i64 low, bs_i64 high, bs_i64 degree, int law, bs_i64 fanout, bool weights, bool last) {
  if (last && fanout >= 0 && high - low > fanout) low = high - fanout;
  const bs_i64 length = high - low;
  const bool all = last || bs_takes_all(law, fanout, weights, length);
  return BsCandidates{low, length, all, length == degree && (all || bs_weighs(law))};
}

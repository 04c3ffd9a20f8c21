// C = A B over integers, and the block restriction Q_R A Q_C, each through hash tables: one a row of C, one a minibatch's Q_C.
// The products are walked over as one list (bs_walk), so many warps share a hub among the rows of B. Sums are exact, so their order
// does not matter; the caller sorts the entries of a table.
#include "table.h"
#include "votes.h"

// The row of each entry.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) rows_of_entries(const bs_i64* __restrict__ pointers, bs_i64 rows,
                                                                       bs_i32* __restrict__ out) {
  bs_walk(pointers, rows, [](bs_i64) { return 0ll; }, [&](bs_i64 r, bs_i64 at, bs_i64) { out[at] = (bs_i32)r; });
}

// Adds every product a_ie b_ec to the slot of column c in the table of row i; e runs over the entries of A. a_ie is factors[e's column] where
// `factors` is given.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) add_products(const bs_i32* __restrict__ rows, const bs_i32* __restrict__ a_indices,
                                                                    const bs_i64* __restrict__ a_values,
                                                                    const bs_i64* __restrict__ factors, bs_i64 a_entries,
                                                                    const bs_i64* __restrict__ b_indptr,
                                                                    const bs_i32* __restrict__ b_indices,
                                                                    const bs_i64* __restrict__ b_values,
                                                                    const bs_i64* __restrict__ products, bs_u32* table,
                                                                    const bs_i64* __restrict__ starts, bs_u64* sums) {
  auto shift = [&](bs_i64 e) { return b_indptr[a_indices[e]] - products[e]; };
  bs_walk(products, a_entries, shift, [&](bs_i64 e, bs_i64 at, bs_i64 by) {
    const bs_i64 slot = bs_slot<1>(table, starts, rows[e], (bs_u32)b_indices[at + by]);
    const bs_i64 own = factors ? factors[a_indices[e]] : a_values ? a_values[e] : 1;
    atomicAdd(&sums[slot], (bs_u64)(own * (b_values ? b_values[at + by] : 1)));
  });
}

// 1 for each slot that holds a sum other than zero.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) mark_sums(const bs_u32* __restrict__ table, const bs_u64* __restrict__ sums,
                                                                 bs_i64 slots, bs_i32* __restrict__ marks) {
  for (bs_i64 i = bs_thread(); i < slots; i += bs_threads()) marks[i] = table[i] != bs_free && sums[i] != 0;
}

// The marked slots as (row, column) keys and their sums, and the rows' ends.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) gather_sums(const bs_u32* __restrict__ table, const bs_u64* __restrict__ sums,
                                                                   const bs_i64* __restrict__ starts, bs_i64 rows,
                                                                   const bs_i64* __restrict__ ranks, bs_u64* __restrict__ keys,
                                                                   bs_i64* __restrict__ values, bs_i64* __restrict__ ends) {
  const bs_i64 slots = starts[rows];
  for (bs_i64 r = bs_thread(); r <= rows; r += bs_threads()) ends[r] = ranks[starts[r]];
  for (bs_i64 i = bs_thread(); i < slots; i += bs_threads()) {
    if (ranks[i + 1] == ranks[i]) continue;
    keys[ranks[i]] = (bs_u64)bs_row_of(starts, rows, i) << 32 | table[i];
    values[ranks[i]] = (bs_i64)sums[i];
  }
}

// Puts columns and sums in the order that sorts the keys.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) order_sums(const bs_i64* __restrict__ order, bs_i64 count,
                                                                  const bs_u64* __restrict__ keys, const bs_i64* __restrict__ sums,
                                                                  bs_i32* __restrict__ columns, bs_i64* __restrict__ values) {
  for (bs_i64 i = bs_thread(); i < count; i += bs_threads()) {
    columns[i] = (bs_i32)(keys[order[i]] & 0x7FFFFFFFu);
    values[i] = sums[order[i]];
  }
}

// Keeps the neighbours of each row whose columns are in the table of its minibatch: their numbers there, their positions in A, and the ends
// of the rows; and how many are kept before each minibatch. A tile holds few rows, so an entry finds its own by few steps. `states`: a ticket, and a word for each tile, all 0.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) keep_met(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                const bs_i32* __restrict__ vertices, bs_i64 rows,
                                                                const bs_i64* __restrict__ parts, bs_i64 k,
                                                                const bs_i64* __restrict__ pointers, const bs_u32* __restrict__ table,
                                                                const bs_i64* __restrict__ starts, const bs_u32* __restrict__ numbers,
                                                                bs_u64* states, bs_i64* __restrict__ ends,
                                                                bs_i64* __restrict__ of_minibatches, bs_i32* __restrict__ columns,
                                                                bs_i64* __restrict__ entries) {
  __shared__ Votes votes;
  __shared__ bs_i64 place;
  const bs_i64 count = pointers[rows];
  for (;;) {
    const bs_i64 tile = bs_next_tile(states, &place), first = tile * BS_VOTES, last = first + BS_VOTES < count ? first + BS_VOTES : count;
    if (first > count) return;
    const bs_i64 r_first = bs_row_of(pointers, rows, first), r_last = first < last ? bs_row_of(pointers, rows, last - 1) : r_first;
    auto row_of = [&](bs_i64 at) { return r_first + bs_row_of(pointers + r_first, r_last - r_first + 1, at); };
    auto entry_of = [&](bs_i64 r, bs_i64 at) { return indptr[vertices[r]] + at - pointers[r]; };
    auto slot_of = [&](bs_i64 r, bs_i64 at) {
      const bs_i64 j = bs_row_of(parts, k, r);
      return starts[j + 1] > starts[j] ? bs_seek<BS_NUMBERED>(table, starts, j, (bs_u32)indices[entry_of(r, at)]) : -1;
    };
    bs_vote(votes, states + 1, tile, last, [&](bs_i64 at) { return slot_of(row_of(at), at) >= 0; });
    const bs_i64 r_here = first > 0 ? bs_row_of(pointers, rows + 1, first - 1) + 1 : 0;  // the first row that begins in the tile
    for (bs_i64 r = r_here + threadIdx.x; r <= rows && pointers[r] < first + BS_VOTES; r += BS_BLOCK)
      ends[r] = bs_kept_before(votes, first, pointers[r]);
    for (bs_i64 j = threadIdx.x; j <= k; j += BS_BLOCK) {
      const bs_i64 begin = pointers[parts[j]];
      if (first <= begin && begin < first + BS_VOTES) of_minibatches[j] = bs_kept_before(votes, first, begin);
    }
    bs_visit_kept(votes, first, [&](bs_i64 at, bs_i64 to) {
      const bs_i64 r = row_of(at);
      columns[to] = (bs_i32)numbers[slot_of(r, at)];
      entries[to] = entry_of(r, at);
    });
  }
}

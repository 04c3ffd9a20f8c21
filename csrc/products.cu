// C = A B over integers, and the block restriction Q_R A Q_C, each through hash tables: one a row of C, one a minibatch's Q_C.
// The products are walked over as one list (bs_walk), so many warps share a hub among the rows of B. Sums are exact, so their order
// does not matter; the caller sorts the entries of a table.
#include "scan_tiles.h"
#include "table.h"
#include "votes.h"

constexpr bs_i64 CLEARED = 2048;  // slots that a block clears at once

struct alignas(16) FourColumns {
  bs_u32 column[4];
};
struct alignas(16) TwoSums {
  bs_u64 sum[2];
};

// The first slot of each table, in the place of the products before each row, by one block.
__device__ __forceinline__ void sum_tables(bs_i64* starts, bs_i64 rows, bs_i64 most, bs_i64* sums) {
  bs_i64 earlier = 0, all;
  for (bs_i64 first = 0; first <= rows; first += BS_BLOCK) {
    const bs_i64 i = first + threadIdx.x, products = i < rows ? bs_load(&starts[i + 1]) - bs_load(&starts[i]) : 0;
    const bs_i64 before = bs_block_before(bs_table_slots(products < most ? products : most), sums, &all);
    if (i <= rows) bs_store(&starts[i], earlier + before);
    earlier += all;
  }
}

// Opens the tables of A B in one launch: pointers into the rows of B that the entries of A name; the first slot of each table, for at most
// `most` columns; and the slots, which are free and 0. `room` slots are there, a multiple of 4; as only the counts say how many are used, no more are
// cleared. Tickets go on beyond the tiles of entries: a block that clears waits for the number of all products, one word of an earlier ticket.
// `states`: a count, a ticket, and a word for each tile, all 0.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) open_products(const bs_i64* __restrict__ a_indptr,
                                                                     const bs_i32* __restrict__ a_indices, bs_i64 rows,
                                                                     const bs_i64* __restrict__ b_indptr, bs_i64 most, bs_i64 room,
                                                                     bs_u64* states, bs_i64* products, bs_i64* starts, bs_u32* table,
                                                                     bs_u64* sums) {
  __shared__ Scan shared;
  __shared__ bool is_last;
  const bs_i64 entries = a_indptr[rows], tiles = entries / SCAN_TILE + 1;
  auto degree = [&](bs_i64 e) { return (bs_i32)(b_indptr[a_indices[e] + 1] - b_indptr[a_indices[e]]); };
  bs_i64 tile = scan_tiles(entries, states + 1, products, shared, degree, [&](bs_i64 first) {
    __syncthreads();
    visit_rows_begun(a_indptr, rows, first, [&](bs_i64 i) { bs_store(&starts[i], products[a_indptr[i]]); });
    if (bs_comes_last(states, 1, tiles, &is_last)) sum_tables(starts, rows, most, shared.sums);
  });
  if (threadIdx.x == 0) shared.before_tile = bs_sum_up_to(states + 2, tiles - 1);
  __syncthreads();
  const bs_i64 needed = 4 * shared.before_tile, slots = needed < room ? needed : room;  // 4: twice, rounded up to a power of two
  for (; (tile - tiles) * CLEARED < slots; tile = bs_next_tile(states + 1, &shared.place)) {
    const bs_i64 first = (tile - tiles) * CLEARED, last = first + CLEARED < slots ? first + CLEARED : slots;
    for (bs_i64 at = first + 4 * threadIdx.x; at < last; at += 4 * BS_BLOCK) {
      *(FourColumns*)(table + at) = FourColumns{{bs_free, bs_free, bs_free, bs_free}};
      *(TwoSums*)(sums + at) = *(TwoSums*)(sums + at + 2) = TwoSums{{0, 0}};
    }
  }
}

// Adds every product a_ie b_ec to the slot of column c in the table of row i; e runs over the entries of A. a_ie is factors[e's column] where
// `factors` is given.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) add_products(const bs_i64* __restrict__ a_indptr,
                                                                    const bs_i32* __restrict__ a_indices,
                                                                    const bs_i64* __restrict__ a_values,
                                                                    const bs_i64* __restrict__ factors, bs_i64 rows,
                                                                    const bs_i64* __restrict__ b_indptr,
                                                                    const bs_i32* __restrict__ b_indices,
                                                                    const bs_i64* __restrict__ b_values,
                                                                    const bs_i64* __restrict__ products, bs_u32* table,
                                                                    const bs_i64* __restrict__ starts, bs_u64* sums) {
  auto row_of = [&](bs_i64 e) { return bs_row_of(a_indptr, rows, e); };
  bs_walk(products, a_indptr[rows], row_of, [&](bs_i64 e, bs_i64 at, bs_i64 i) {
    const bs_i64 entry = b_indptr[a_indices[e]] + at - products[e];
    const bs_i64 slot = bs_slot<1>(table, starts, i, (bs_u32)b_indices[entry]);
    const bs_i64 own = factors ? factors[a_indices[e]] : a_values ? a_values[e] : 1;
    atomicAdd(&sums[slot], (bs_u64)(own * (b_values ? b_values[entry] : 1)));
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
// of the rows; and how many are kept before each minibatch. Where `picked` is given, numbers run through all minibatches, and minibatch j has
// those from picked[j] on. A tile holds few rows, so an entry finds its own by few steps. `states`: a ticket, and a word for each tile, all 0.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) keep_met(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                const bs_i32* __restrict__ vertices, const bs_i64* __restrict__ parts,
                                                                bs_i64 k, const bs_i64* __restrict__ pointers,
                                                                const bs_u32* __restrict__ table, const bs_i64* __restrict__ starts,
                                                                const bs_u32* __restrict__ numbers, const bs_i64* __restrict__ picked,
                                                                bs_u64* states, bs_i64* __restrict__ ends,
                                                                bs_i64* __restrict__ of_minibatches, bs_i32* __restrict__ columns,
                                                                bs_i64* __restrict__ entries) {
  __shared__ Votes votes;
  __shared__ bs_i64 place;
  const bs_i64 rows = parts[k], count = pointers[rows];
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
      columns[to] = (bs_i32)((bs_i64)numbers[slot_of(r, at)] - (picked ? picked[bs_row_of(parts, k, r)] : 0));
      entries[to] = entry_of(r, at);
    });
  }
}

// Prefix sums: counts of rows become row pointers, pointers[i] = sum of counts[0 .. i - 1], in one pass.
#include "scan_tiles.h"
#include "table.h"

extern "C" __global__ void __launch_bounds__(BS_BLOCK) scan_counts(const bs_i32* __restrict__ counts, bs_i64 n, bs_u64* states,
                                                                   bs_i64* __restrict__ pointers) {
  __shared__ Scan shared;
  scan_tiles(n, states, pointers, shared, [&](bs_i64 at) { return counts[at]; }, [](bs_i64) {});
}

// The first slot of the hash table of each row: row r holds pointers[r + 1] - pointers[r] columns, at most `most`.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) table_starts(const bs_i64* __restrict__ pointers, bs_i64 rows, bs_i64 most,
                                                                    bs_u64* states, bs_i64* __restrict__ starts) {
  __shared__ Scan shared;
  auto slots = [&](bs_i64 r) {
    const bs_i64 all = pointers[r + 1] - pointers[r];
    return (bs_i32)bs_table_slots(all < most ? all : most);
  };
  scan_tiles(rows, states, starts, shared, slots, [](bs_i64) {});
}

// The row pointers of the picks of parts[k] rows (`parts` may be null: of `room` rows). A row has counts[r] picks; where `counts` is
// null, as many as it has neighbours, at most `most`; with replacement (`repeated`) `most` if it has any. Writes the picks before each
// minibatch to `ends`, k + 1 numbers, and the number of rows after these, unless that is null.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) draw_pointers(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ vertices,
                                                                     bs_i64 room, const bs_i64* __restrict__ parts, bs_i64 k, bs_i64 most,
                                                                     bs_i32 repeated, const bs_i32* __restrict__ counts, bs_u64* states,
                                                                     bs_i64* pointers, bs_i64* __restrict__ ends) {
  __shared__ Scan shared;
  const bs_i64 rows = parts ? parts[k] : room;
  auto count = [&](bs_i64 r) {
    if (counts) return counts[r];
    const bs_i64 begin = indptr[vertices[r]], degree = indptr[vertices[r] + 1] - begin;
    return (bs_i32)(repeated ? (degree ? most : 0) : (degree < most ? degree : most));
  };
  scan_tiles(rows, states, pointers, shared, count, [&](bs_i64 first) {
    if (!ends) return;
    __syncthreads();
    visit_rows_begun(parts, k, first, [&](bs_i64 j) { ends[j] = pointers[parts[j]]; });
    if (threadIdx.x == 0 && rows < first + SCAN_TILE) ends[k + 1] = rows;
  });
}

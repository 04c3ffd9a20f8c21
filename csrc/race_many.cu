// Draws by key of more than 32 neighbours. All keys are written to memory; then a block finds the s-th smallest of a row digit by digit and
// takes the keys below it, in the order of the columns. Many blocks share a hub (hubs.h), each a slice, in two passes: the first counts keys
// by their leading bits, which tells the bin of the s-th smallest; the second takes the keys of lower bins and leaves those of that bin,
// fewer than s as a rule, for the block that ends the last slice. Tickets number the slices of both passes (look_back.h).
#include "block_sets.h"
#include "hubs.h"
#include "look_back.h"
#include "ranked_keys.h"

constexpr bs_i64 BINS = 256;                     // two for each power of 2
constexpr bs_i64 FIRST_BIN = (1023 - 64) << 1;  // keys of the race are 2^57 times -log2(u), divided by up to 2^62

// Whether blocks share a row: sorting its picks, which one block does, must not outweigh reading its keys.
__device__ __forceinline__ bool is_shared(bs_i64 length, bs_i64 s) {
  return length > BS_HUB && length > 8 * s;  // LENGTH_OF_PICK of bulksample/backends/cuda/draws.py
}

// All 0 before the first launch: RACE_WORDS of bulksample/backends/cuda/draws.py.
struct HubRaces {
  Hubs hubs;
  bs_u64 ticket;
  bs_u64 counted[BS_HUBS];  // slices of the first pass
  bs_u64 bound[BS_HUBS];    // the bin of the last pick, and from bit 8 on the picks from it
  bs_u64 taken[BS_HUBS];    // picks from lower bins
  bs_i64 left[BS_HUBS][BS_SLICES];  // keys of that bin, at the beginning of each slice
  bs_u32 bins[BS_HUBS][BINS];
};

__device__ __forceinline__ bs_i64 bin_of(bs_u64 key) {
  const bs_i64 bin = (bs_i64)(key >> 51) - FIRST_BIN;
  return bin < 0 ? 0 : bin < BINS ? bin : BINS - 1;
}

// The keys of all neighbours of parts[k] rows, laid end to end from pointers[0]. Lists hubs, unless `races` is null.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) keys_of_rows(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                    const bs_i64* __restrict__ values, const bs_i32* __restrict__ vertices,
                                                                    const bs_i32* __restrict__ names,
                                                                    const bs_i64* __restrict__ parts, bs_i64 k,
                                                                    const bs_i64* __restrict__ minibatches, bs_i32 shared, bs_u64 seed,
                                                                    bs_u32 tag, bs_i64 s, const bs_i64* __restrict__ pointers,
                                                                    bs_u64* __restrict__ keys, bs_i32* __restrict__ columns,
                                                                    HubRaces* races) {
  auto shift = [&](bs_i64 r) { return indptr[vertices[r]] - pointers[r]; };
  bs_walk(pointers, parts[k], shift, [&](bs_i64 r, bs_i64 at, bs_i64 by) {
    const BsStream stream{seed, shared ? 0u : (bs_u32)names[r], (bs_u32)minibatches[bs_row_of(parts, k, r)], tag};
    columns[at] = indices[at + by];
    keys[at] = key_bits(stream, columns[at], values ? (double)values[at + by] : 1.0);
    if (races && at == pointers[r] && is_shared(pointers[r + 1] - at, s)) bs_list_hub(&races->hubs, r);
  });
}

// Writes the columns of the s smallest keys begin .. end - 1 in their order, by a block; of equal keys the first. A barrier for all threads.
__device__ __forceinline__ void take_row(const bs_u64* keys, const bs_i32* columns, bs_i64 begin, bs_i64 end, bs_i64 s, Search& search,
                                         bs_i32* picks) {
  bs_i64 below = 0, written = 0;
  const bs_u64 bound = s < end - begin ? word_of_rank(begin, end, s, 64, search, &below, [&](bs_i64 at) { return keys[at]; }) : NO_BITS;
  bs_i64 ties = bound == NO_BITS ? 0 : s - below;  // how many keys equal to the bound are taken
  for (bs_i64 first = begin; first < end; first += BS_BLOCK) {
    const bs_i64 at = first + threadIdx.x;
    const bool less = at < end && keys[at] < bound, tie = at < end && keys[at] == bound && bound != NO_BITS;
    bs_i64 all, all_ties;
    const bool taken = bs_block_before((bs_i64)tie, search.sums, &all_ties) < ties ? less || tie : less;
    const bs_i64 place = written + bs_block_before((bs_i64)taken, search.sums, &all);
    if (taken) picks[place] = columns[at];
    written += all;
    ties -= ties < all_ties ? ties : all_ties;
  }
  __syncthreads();
}

// A row that many blocks share, and where its picks go.
struct SharedRow {
  bs_i64 begin, end, count;
  bs_i32* picks;
};

// Counts the keys of a slice by their bins; the last slice finds the bin in which the key of the last pick lies.
__device__ __forceinline__ void count_slice(HubRaces* races, bs_i64 hub, const SharedRow& row, const Slice& own, const bs_u64* keys,
                                            Search& search, bool* is_last) {
  for (bs_i64 b = threadIdx.x; b < BINS; b += BS_BLOCK) search.bins[b] = 0;
  __syncthreads();
  for (bs_i64 at = own.from + threadIdx.x; at < own.to; at += BS_BLOCK)
    if (keys[at] != NO_BITS) atomicAdd(&search.bins[bin_of(keys[at])], 1u);
  __syncthreads();
  for (bs_i64 b = threadIdx.x; b < BINS; b += BS_BLOCK)
    if (search.bins[b]) atomicAdd(&races->bins[hub][b], search.bins[b]);
  if (!bs_comes_last(&races->counted[hub], 1, BS_SLICES, is_last)) return;
  const bs_u32* two = races->bins[hub] + 2 * threadIdx.x;
  const bs_i64 low = (bs_i64)bs_load(&two[0]), held = low + (bs_i64)bs_load(&two[1]);
  bs_i64 all;
  const bs_i64 wanted = row.count - bs_block_before(held, search.sums, &all);
  if (wanted <= 0 || wanted > held) return;
  const bool second = wanted > low;
  bs_publish(&races->bound[hub], (bs_u64)(wanted - (second ? low : 0)) << 8 | (2 * threadIdx.x + second));
}

// Takes the keys of a slice in lower bins, in any order; the last slice settles the bin of the last pick and sorts the picks.
__device__ __forceinline__ void take_slice(HubRaces* races, bs_i64 hub, bs_i64 slice, const SharedRow& row, bs_u64* keys, bs_i32* columns,
                                           Search& search, bs_u64* told, bool* is_last) {
  const bs_u64 bound = bs_wait_for(&races->bound[hub], told);
  const bs_i64 bin = (bs_i64)(bound & 255u), from_bin = (bs_i64)(bound >> 8);
  const Slice own = bs_slice(row.begin, row.end, slice);
  bs_i64 left = 0, all;
  for (bs_i64 first = own.from; first < own.to; first += BS_BLOCK) {
    const bs_i64 at = first + threadIdx.x;
    const bs_u64 key = at < own.to ? keys[at] : NO_BITS;
    const bs_i32 column = at < own.to ? columns[at] : 0;
    const bs_i64 in = key == NO_BITS ? BINS : bin_of(key);
    if (in < bin) row.picks[atomicAdd(&races->taken[hub], 1ull)] = column;
    const bs_i64 place = own.from + left + bs_block_before((bs_i64)(in == bin), search.sums, &all);  // where all have read by now
    if (in == bin) keys[place] = key, columns[place] = column;
    left += all;
  }
  if (threadIdx.x == 0) races->left[hub][slice] = left;
  if (!bs_comes_last(&races->hubs.done[hub], 1, BS_SLICES, is_last)) return;
  bs_i64 end = row.begin + races->left[hub][0];
  for (bs_i64 other = 1; other < BS_SLICES; ++other) {  // side by side, in the order of the columns
    const bs_i64 from = bs_slice(row.begin, row.end, other).from, held = races->left[hub][other];
    for (bs_i64 first = 0; first < held; first += BS_BLOCK) {
      const bs_i64 i = first + threadIdx.x;
      const bs_u64 key = i < held ? keys[from + i] : 0;
      const bs_i32 column = i < held ? columns[from + i] : 0;
      __syncthreads();
      if (i < held) keys[end + i] = key, columns[end + i] = column;
      __syncthreads();
    }
    end += held;
  }
  __syncthreads();
  take_row(keys, columns, row.begin, end, from_bin, search, row.picks + row.count - from_bin);
  sort_block((bs_u32*)row.picks, (bs_u32)row.count);
}

// Writes the picks of each of parts[k] rows in the order of their columns. A block takes a row, and first its share of the hubs that
// `keys_of_rows` listed, unless `races` is null; their keys are moved.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) take_smallest(const bs_i64* __restrict__ pointers, bs_u64* keys, bs_i32* columns,
                                                                     const bs_i64* __restrict__ parts, bs_i64 k, bs_i64 s,
                                                                     const bs_i64* __restrict__ ends, bs_i32* picks, HubRaces* races) {
  __shared__ Search search;
  __shared__ bs_i64 taken;
  __shared__ bs_u64 told;
  __shared__ bool is_last;
  const bs_i64 slices = races ? bs_all_slices(&races->hubs) : 0, rows = parts[k];
  for (bs_i64 item = 0; slices > 0 && (item = bs_next_tile(&races->ticket, &taken)) < 2 * slices;) {
    const bs_i64 hub = item % slices / BS_SLICES, slice = item % BS_SLICES, r = races->hubs.rows[hub];
    const SharedRow row{pointers[r], pointers[r + 1], ends[r + 1] - ends[r], picks + ends[r]};
    if (row.count == 0) continue;
    if (item < slices)
      count_slice(races, hub, row, bs_slice(row.begin, row.end, slice), keys, search, &is_last);
    else
      take_slice(races, hub, slice, row, keys, columns, search, &told, &is_last);
  }
  for (bs_i64 r = blockIdx.x; r < rows; r += gridDim.x) {
    if (races && is_shared(pointers[r + 1] - pointers[r], s) && bs_is_listed(&races->hubs, r)) continue;
    take_row(keys, columns, pointers[r], pointers[r + 1], s, search, picks + ends[r]);
  }
}

// The race of whole layers: of each of k rows of weighted columns, one a mini-batch, the s smallest keys; many blocks share a row. Three
// launches, each over tiles of 2,048 entries wherever rows begin and end: `layer_keys` makes the keys and counts them in 4,096 bins,
// `layer_bounds` looks for the key of rank s among those of one bin, and `layer_take` writes the picks in the order of the entries, by one
// look-back. No block waits for the end of a row: the block that does the last of a row's entries goes on alone.
//
// Entries are columns that ascend with float64 weights, or the slots of the hash table of a product: column -1 is a free slot, and the
// weight is the sum, or its square. Ties go to the smaller column in either order.
#include "ranked_keys.h"
#include "table.h"
#include "votes.h"

constexpr bs_i32 BINS = 4096;  // 16 for each power of 2 from 2^-60 on; keys beyond either end are in the outermost
constexpr bs_i64 FIRST_BIN = (1023 - 60) << 4;

// What the launches learn about a row, all 0 before the first: LAYER_ROW_WORDS of bulksample/backends/cuda/draws.py.
struct LayerRow {
  bs_u64 keyed, collected;  // entries done by either of the first launches
  bs_u64 candidates;        // keys of the bin
  bs_u64 bin, left;         // where the key of rank s lies, and its rank there; BINS if all keys are taken
  bs_u64 key, column;       // of rank s: the first that is left out
  bs_u64 unused;
  bs_u32 bins[BINS];
};

// Two neighbouring entries, read or written at once.
struct alignas(16) TwoKeys {
  bs_u64 key[2];
};
struct alignas(8) TwoColumns {
  bs_i32 column[2];
};
struct alignas(16) TwoSums {
  bs_i64 sum[2];
};
struct alignas(16) TwoWeights {
  double weight[2];
};

// The rows of entries; `once`: all rows are the same, and their entries lie there once.
struct Layer {
  const bs_i64* pointers;
  const bs_i32* columns;
  const double* weights;
  const bs_i64* sums;  // in the place of weights, unless null
  bs_i32 squared, once;
  bs_i64 k;

  __device__ __forceinline__ bs_i64 width() const { return pointers[once ? 1 : k]; }
  __device__ __forceinline__ bs_i64 entries() const { return once ? k * width() : width(); }
  __device__ __forceinline__ bs_i64 row_of(bs_i64 at) const { return once ? at / width() : bs_row_of(pointers, k, at); }
  __device__ __forceinline__ bs_i64 begin(bs_i64 j) const { return once ? j * width() : pointers[j]; }
  __device__ __forceinline__ bs_i64 place(bs_i64 j, bs_i64 at) const { return once ? at - j * width() : at; }
  // True if entries 2 i and 2 i + 1 can be read at once: arrays begin on whole words of a pair, as a part of another may not.
  __device__ __forceinline__ bool in_pairs() const {
    return !once && (bs_u64)columns % sizeof(TwoColumns) == 0 && (sums ? (bs_u64)sums : (bs_u64)weights) % sizeof(TwoSums) == 0;
  }
  __device__ __forceinline__ double weight(bs_i64 place) const {
    return sums ? of_sum(columns[place], sums[place]) : weights[place];
  }
  __device__ __forceinline__ double of_sum(bs_i32 column, bs_i64 sum) const {
    const double weight = column < 0 ? 0.0 : (double)sum;
    return squared ? weight * weight : weight;
  }
  __device__ __forceinline__ TwoWeights two_weights(bs_i64 pair, const TwoColumns& own) const {
    if (!sums) return ((const TwoWeights*)weights)[pair];
    const TwoSums two = ((const TwoSums*)sums)[pair];
    return TwoWeights{{of_sum(own.column[0], two.sum[0]), of_sum(own.column[1], two.sum[1])}};
  }
};

__device__ __forceinline__ bs_i32 bin_of(bs_u64 key) {
  const bs_i64 bin = (bs_i64)(key >> 48) - FIRST_BIN;
  return (bs_i32)(bin < 0 ? 0 : bin < BINS ? bin : BINS - 1);
}

// Calls visit(j, from, to) for the entries of each row in each tile, on one block.
template <class Visit>
__device__ __forceinline__ void walk_rows(const Layer& layer, Visit visit) {
  const bs_i64 all = layer.entries();
  for (bs_i64 first = (bs_i64)blockIdx.x * BS_VOTES; first < all; first += (bs_i64)gridDim.x * BS_VOTES) {
    const bs_i64 last = first + BS_VOTES < all ? first + BS_VOTES : all;
    for (bs_i64 from = first; from < last;) {
      const bs_i64 j = layer.row_of(from), end = layer.begin(j + 1), to = end < last ? end : last;
      visit(j, from, to);
      from = to;
    }
  }
}

// Finds the bin in which the key of rank s lies.
__device__ __forceinline__ void choose_bin(LayerRow& row, bs_i64 s, bs_i64* sums) {
  constexpr bs_i32 OWN = BINS / BS_BLOCK;
  const bs_u32* own = row.bins + OWN * threadIdx.x;
  bs_i64 held = 0, all;
  for (bs_i32 b = 0; b < OWN; ++b) held += bs_load(&own[b]);
  bs_i64 left = s - bs_block_before(held, sums, &all);
  if (s < 0 || s >= all) {
    if (threadIdx.x == 0) row.bin = BINS;
  } else if (0 <= left && left < held) {
    bs_i32 b = 0;
    for (bs_u32 in; left >= (in = bs_load(&own[b])); ++b) left -= in;
    row.bin = OWN * threadIdx.x + b;
    row.left = (bs_u64)left;
  }
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) layer_keys(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ columns,
                                                                  const double* __restrict__ weights, const bs_i64* __restrict__ sums,
                                                                  bs_i32 squared, bs_i32 once, bs_i64 k, bs_i64 s,
                                                                  const bs_i64* __restrict__ minibatches, bs_u64 seed, bs_u32 tag,
                                                                  LayerRow* rows, bs_u64* __restrict__ keys) {
  __shared__ bs_u32 bins[BINS];
  __shared__ bs_i64 of_warps[BS_BLOCK / 32];
  __shared__ bool is_last;
  const Layer layer{pointers, columns, weights, sums, squared, once, k};
  const bool pairs = layer.in_pairs();
  walk_rows(layer, [&](bs_i64 j, bs_i64 from, bs_i64 to) {
    for (bs_i32 b = (bs_i32)threadIdx.x; b < BINS; b += BS_BLOCK) bins[b] = 0;
    __syncthreads();
    const BsStream stream{seed, 0u, (bs_u32)minibatches[j], tag};
    auto key_of = [&](bs_i32 column, double weight) {
      const bs_u64 key = key_bits(stream, column, weight);
      if (key != NO_BITS) atomicAdd(&bins[bin_of(key)], 1u);
      return key;
    };
    for (bs_i64 pair = from / 2 + threadIdx.x; 2 * pair < to; pair += BS_BLOCK) {
      const bs_i64 at = 2 * pair;
      if (at >= from && at + 1 < to && pairs) {
        const TwoColumns own = ((const TwoColumns*)columns)[pair];
        const TwoWeights of = layer.two_weights(pair, own);
        ((TwoKeys*)keys)[pair] = TwoKeys{{key_of(own.column[0], of.weight[0]), key_of(own.column[1], of.weight[1])}};
        continue;
      }
      for (bs_i64 one = at < from ? from : at; one < to && one < at + 2; ++one) {
        const bs_i64 place = layer.place(j, one);
        keys[one] = key_of(columns[place], layer.weight(place));
      }
    }
    __syncthreads();
    for (bs_i32 b = (bs_i32)threadIdx.x; b < BINS; b += BS_BLOCK)
      if (bins[b]) atomicAdd(&rows[j].bins[b], bins[b]);
    if (bs_comes_last(&rows[j].keyed, to - from, layer.begin(j + 1) - layer.begin(j), &is_last)) choose_bin(rows[j], s, of_warps);
  });
}

// `keys` has room for an even number. `candidates` holds, from the first entry of a row on, the entries whose keys are in its bin.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) layer_bounds(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ columns,
                                                                    bs_i32 once, bs_i64 k, LayerRow* rows,
                                                                    const bs_u64* __restrict__ keys, bs_u32* candidates) {
  __shared__ Search search;
  __shared__ bool is_last;
  const Layer layer{pointers, columns, nullptr, nullptr, 0, once, k};
  walk_rows(layer, [&](bs_i64 j, bs_i64 from, bs_i64 to) {
    LayerRow& row = rows[j];
    const bs_i64 begin = layer.begin(j), bin = (bs_i64)row.bin;
    if (bin == BINS) return;
    for (bs_i64 pair = from / 2 + threadIdx.x; 2 * pair < to; pair += BS_BLOCK) {
      const TwoKeys two = ((const TwoKeys*)keys)[pair];
      for (bs_i32 i = 0; i < 2; ++i) {
        const bs_i64 at = 2 * pair + i;
        if (at < from || at >= to || two.key[i] == NO_BITS || bin_of(two.key[i]) != bin) continue;
        bs_store(&candidates[begin + (bs_i64)atomicAdd(&row.candidates, 1ull)], (bs_u32)(at - begin));
      }
    }
    if (!bs_comes_last(&row.collected, to - from, layer.begin(j + 1) - begin, &is_last)) return;
    const bs_i64 count = (bs_i64)bs_load(&row.candidates), rank = (bs_i64)row.left;
    auto key_at = [&](bs_i64 i) { return keys[begin + bs_load(&candidates[begin + i])]; };
    bs_i64 below, fewer;
    const bs_u64 key = word_of_rank(0, count, rank, 64, search, &below, key_at);
    const bs_u64 column = word_of_rank(0, count, rank - below, 32, search, &fewer, [&](bs_i64 i) {
      return key_at(i) == key ? (bs_u64)columns[layer.place(j, begin + bs_load(&candidates[begin + i]))] : 0xFFFFFFFFull;
    });
    if (threadIdx.x == 0) row.key = key, row.column = column;
  });
}

// Writes picks, P(key < tau) of each, tau the smallest key that was left out, and the picks before each row; and enters each pick with its
// place into the hash table of its row, unless `table` is null. `states`: a ticket, and a word for each tile, all 0.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) layer_take(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ columns,
                                                                  const double* __restrict__ weights, const bs_i64* __restrict__ sums,
                                                                  bs_i32 squared, bs_i32 once, bs_i64 k,
                                                                  const LayerRow* __restrict__ rows, const bs_u64* __restrict__ keys,
                                                                  bs_u64* states, bs_i64* __restrict__ ends, bs_i32* __restrict__ picks,
                                                                  double* __restrict__ inclusion, bs_u32* table,
                                                                  const bs_i64* __restrict__ starts, bs_u32* __restrict__ numbers) {
  __shared__ Votes votes;
  __shared__ bs_i64 place_of_tile;
  const Layer layer{pointers, columns, weights, sums, squared, once, k};
  const bs_i64 count = layer.entries();
  for (;;) {
    const bs_i64 tile = bs_next_tile(states, &place_of_tile), first = tile * BS_VOTES, end = first + BS_VOTES;
    if (first > count) return;
    bs_vote(votes, states + 1, tile, end < count ? end : count, [&](bs_i64 at) {
      const bs_u64 key = keys[at];
      if (key == NO_BITS) return false;
      const bs_i64 j = layer.row_of(at);
      const LayerRow& row = rows[j];
      return row.bin == BINS || key < row.key || (key == row.key && (bs_u64)columns[layer.place(j, at)] < row.column);
    });
    for (bs_i64 j = threadIdx.x; j <= k; j += BS_BLOCK) {
      const bs_i64 begin = layer.begin(j);
      if (first <= begin && begin < end) ends[j] = bs_kept_before(votes, first, begin);
    }
    bs_visit_kept(votes, first, [&](bs_i64 at, bs_i64 to) {
      const bs_i64 j = layer.row_of(at), place = layer.place(j, at);
      picks[to] = columns[place];
      if (table) numbers[bs_slot<BS_NUMBERED>(table, starts, j, (bs_u32)columns[place])] = (bs_u32)to;
      inclusion[to] = bs_inclusion(layer.weight(place), rows[j].bin == BINS ? no_key() : __longlong_as_double((bs_i64)rows[j].key));
    });
  }
}

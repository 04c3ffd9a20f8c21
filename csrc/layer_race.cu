// The race of whole layers: of each of k rows of weighted columns, one a mini-batch, the s smallest keys; many blocks share a row. One launch
// passes three times over tiles of 2,048 entries, wherever rows begin and end: it makes the keys and counts them in 4,096 bins, looks for the
// key of rank s among those of one bin, and writes the picks in the order of the entries by one look-back. Tickets number the tiles of all three
// passes, so a block that waits for a row, for one word, waits for earlier tickets alone (look_back.h). The block that does the last of
// a row's entries in a pass goes on alone, and sets the word.
//
// Entries are columns that ascend with float64 weights, or the slots of the hash table of a product: column -1 is a free slot, and the
// weight is the sum, or its square. Ties go to the smaller column in either order.
#include "ranked_keys.h"
#include "table.h"
#include "votes.h"

constexpr bs_i32 BINS = 4096;  // 16 for each power of 2 from 2^-60 on; keys beyond either end are in the outermost
constexpr bs_i64 FIRST_BIN = (1023 - 60) << 4;

constexpr bs_i32 FEW_KEYS = 256;  // of a bin are ranked each against each

// What the passes learn about a row, all 0 before the first: ROW_WORDS of bulksample/backends/cuda/draws.py.
struct LayerRow {
  bs_u64 keyed, collected;  // entries done in either of the first passes
  bs_u64 candidates;        // keys of the bin
  bs_u64 left;              // the rank of the key of rank s in its bin
  bs_u64 key, column;       // of rank s: the first that is left out
  bs_u64 bin;               // 1 + the bin in which it lies, once known; 1 + BINS if all keys are taken
  bs_u64 settled;           // 1 once the key is known
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

// Calls visit(j, from, to) for the entries of each row in a tile.
template <class Visit>
__device__ __forceinline__ void walk_rows(const Layer& layer, bs_i64 tile, bs_i64 count, Visit visit) {
  const bs_i64 first = tile * BS_VOTES, last = first + BS_VOTES < count ? first + BS_VOTES : count;
  for (bs_i64 from = first; from < last;) {
    const bs_i64 j = layer.row_of(from), end = layer.begin(j + 1), to = end < last ? end : last;
    visit(j, from, to);
    from = to;
  }
}

// Calls visit(at, both) for the entries from .. to - 1: two at a time where both lie there, of which the first has an even number.
template <class Visit>
__device__ __forceinline__ void visit_pairs(bs_i64 from, bs_i64 to, Visit visit) {
  for (bs_i64 pair = from / 2 + threadIdx.x; 2 * pair < to; pair += BS_BLOCK)
    visit(2 * pair < from ? from : 2 * pair, from <= 2 * pair && 2 * pair + 1 < to);
}

// Finds the bin in which the key of rank s lies.
__device__ __forceinline__ void choose_bin(LayerRow& row, bs_i64 s, bs_i64* sums) {
  constexpr bs_i32 OWN = BINS / BS_BLOCK;
  const bs_u32* own = row.bins + OWN * threadIdx.x;
  bs_i64 held = 0, all;
  for (bs_i32 b = 0; b < OWN; ++b) held += bs_load(&own[b]);
  bs_i64 left = s - bs_block_before(held, sums, &all);
  if (s < 0 || s >= all) {
    if (threadIdx.x == 0) bs_publish(&row.bin, 1 + (bs_u64)BINS);
  } else if (0 <= left && left < held) {
    bs_i32 b = 0;
    for (bs_u32 in; left >= (in = bs_load(&own[b])); ++b) left -= in;
    bs_store(&row.left, (bs_u64)left);
    bs_publish(&row.bin, 1 + (bs_u64)(OWN * threadIdx.x + b));
  }
}

// The keys of a bin, if they are few, or a search among them.
struct Settling {
  bs_u64 keys[FEW_KEYS];
  bs_u32 columns[FEW_KEYS];
  Search search;
};

// Finds the key of rank `rank` among `count` of a bin, by a block. key_at(i) and column_at(i) are those of candidate i.
template <class Key, class Column>
__device__ __forceinline__ void settle(LayerRow& row, bs_i64 count, bs_i64 rank, Settling& shared, Key key_at, Column column_at) {
  if (count > FEW_KEYS) {
    bs_i64 below, fewer;
    const bs_u64 key = word_of_rank(0, count, rank, 64, shared.search, &below, key_at);
    const bs_u64 column = word_of_rank(0, count, rank - below, 32, shared.search, &fewer,
                                       [&](bs_i64 i) { return key_at(i) == key ? (bs_u64)column_at(i) : 0xFFFFFFFFull; });
    if (threadIdx.x == 0) {
      bs_store(&row.key, key);
      bs_store(&row.column, column);
      bs_publish(&row.settled, 1ull);
    }
    return;
  }
  for (bs_i32 i = (bs_i32)threadIdx.x; i < count; i += BS_BLOCK) shared.keys[i] = key_at(i), shared.columns[i] = column_at(i);
  __syncthreads();
  for (bs_i32 i = (bs_i32)threadIdx.x; i < count; i += BS_BLOCK) {
    bs_i32 smaller = 0;
    for (bs_i32 o = 0; o < count; ++o)
      smaller += shared.keys[o] < shared.keys[i] || (shared.keys[o] == shared.keys[i] && shared.columns[o] < shared.columns[i]);
    if (smaller != rank) continue;
    bs_store(&row.key, shared.keys[i]);
    bs_store(&row.column, (bs_u64)shared.columns[i]);
    bs_publish(&row.settled, 1ull);
  }
}

// The first key of a row that is left out.
struct Bound {
  bs_u64 key, column;
  bool all;  // none is

  __device__ __forceinline__ bool beyond(bs_u64 other, bs_u64 of_column) const {
    return all || other < key || (other == key && of_column < column);
  }
};

__device__ __forceinline__ Bound bound_of(const LayerRow& row) {
  return Bound{bs_load(&row.key), bs_load(&row.column), bs_load(&row.bin) == 1 + (bs_u64)BINS};
}

// Shared memory of a block, in turn.
union Pass {
  bs_u32 bins[BINS];
  Settling settling;
  Votes votes;
};

// Writes picks, P(key < tau) of each, tau the smallest key that was left out, and the picks before each row; and enters each pick with its
// place into the hash table of its row, unless `table` is null. `candidates` has room for all entries: those whose keys are in the bin of a row,
// from its first entry on. `states`: a ticket, and a word for each tile, all 0.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) race_layers(const bs_i64* __restrict__ pointers, const bs_i32* __restrict__ columns,
                                                                   const double* __restrict__ weights, const bs_i64* __restrict__ sums,
                                                                   bs_i32 squared, bs_i32 once, bs_i64 k, bs_i64 s,
                                                                   const bs_i64* __restrict__ minibatches, bs_u64 seed, bs_u32 tag,
                                                                   LayerRow* rows, bs_u64* keys, bs_u32* candidates, bs_u64* states,
                                                                   bs_i64* __restrict__ ends, bs_i32* __restrict__ picks,
                                                                   double* __restrict__ inclusion, bs_u32* table,
                                                                   const bs_i64* __restrict__ starts, bs_u32* __restrict__ numbers) {
  __shared__ Pass pass;
  __shared__ Bound bound;
  __shared__ bs_i64 taken, of_warps[BS_BLOCK / 32];
  __shared__ bs_u64 told;
  __shared__ bool is_last;
  const Layer layer{pointers, columns, weights, sums, squared, once, k};
  const bs_i64 count = layer.entries(), tiles = count / BS_VOTES + 1;
  const bool pairs = layer.in_pairs();
  bs_i64 tile = bs_next_tile(states, &taken);
  for (; tile < tiles; tile = bs_next_tile(states, &taken)) {
    walk_rows(layer, tile, count, [&](bs_i64 j, bs_i64 from, bs_i64 to) {
      for (bs_i32 b = (bs_i32)threadIdx.x; b < BINS; b += BS_BLOCK) pass.bins[b] = 0;
      __syncthreads();
      const BsStream stream{seed, 0u, (bs_u32)minibatches[j], tag};
      auto key_of = [&](bs_i32 column, double weight) {
        const bs_u64 key = key_bits(stream, column, weight);
        if (key != NO_BITS) atomicAdd(&pass.bins[bin_of(key)], 1u);
        return key;
      };
      visit_pairs(from, to, [&](bs_i64 at, bool both) {
        if (both && pairs) {
          const TwoColumns own = ((const TwoColumns*)columns)[at / 2];
          const TwoWeights of = layer.two_weights(at / 2, own);
          ((TwoKeys*)keys)[at / 2] = TwoKeys{{key_of(own.column[0], of.weight[0]), key_of(own.column[1], of.weight[1])}};
          return;
        }
        for (bs_i64 one = at; one <= at + both; ++one) {
          const bs_i64 place = layer.place(j, one);
          keys[one] = key_of(columns[place], layer.weight(place));
        }
      });
      __syncthreads();
      for (bs_i32 b = (bs_i32)threadIdx.x; b < BINS; b += BS_BLOCK)
        if (pass.bins[b]) atomicAdd(&rows[j].bins[b], pass.bins[b]);
      if (bs_comes_last(&rows[j].keyed, to - from, layer.begin(j + 1) - layer.begin(j), &is_last)) choose_bin(rows[j], s, of_warps);
    });
  }
  for (; tile < 2 * tiles; tile = bs_next_tile(states, &taken)) {
    walk_rows(layer, tile - tiles, count, [&](bs_i64 j, bs_i64 from, bs_i64 to) {
      LayerRow& row = rows[j];
      const bs_i64 begin = layer.begin(j), bin = (bs_i64)bs_wait_for(&row.bin, &told) - 1;
      if (bin == BINS) return;
      visit_pairs(from, to, [&](bs_i64 at, bool both) {
        const TwoKeys two = both ? ((const TwoKeys*)keys)[at / 2] : TwoKeys{{keys[at], NO_BITS}};
        for (bs_i32 i = 0; i < 2; ++i)
          if (two.key[i] != NO_BITS && bin_of(two.key[i]) == bin)
            candidates[begin + (bs_i64)atomicAdd(&row.candidates, 1ull)] = (bs_u32)(at + i - begin);
      });
      if (!bs_comes_last(&row.collected, to - from, layer.begin(j + 1) - begin, &is_last)) return;
      auto at = [&](bs_i64 i) { return begin + candidates[begin + i]; };
      settle(row, (bs_i64)bs_load(&row.candidates), (bs_i64)bs_load(&row.left), pass.settling,
             [&](bs_i64 i) { return keys[at(i)]; }, [&](bs_i64 i) { return (bs_u32)columns[layer.place(j, at(i))]; });
    });
  }
  for (; tile < 3 * tiles; tile = bs_next_tile(states, &taken)) {
    const bs_i64 first = (tile - 2 * tiles) * BS_VOTES, end = first + BS_VOTES, last = end < count ? end : count;
    const bs_i64 j_first = first < count ? layer.row_of(first) : k, j_last = first < count ? layer.row_of(last - 1) : -1;
    for (bs_i64 j = j_first + threadIdx.x; j <= j_last; j += BS_BLOCK) {
      if (layer.begin(j) == layer.begin(j + 1)) continue;
      const bs_u64* last_word = bs_wait(&rows[j].bin) > (bs_u64)BINS ? &rows[j].bin : &rows[j].settled;
      bs_wait(last_word);
      bs_acquired(last_word);
    }
    if (threadIdx.x == 0 && first < count) bound = bound_of(rows[j_first]);
    __syncthreads();
    __threadfence();
    auto bound_in = [&](bs_i64 j) { return j == j_first ? bound : bound_of(rows[j]); };
    bs_vote(pass.votes, states + 1, first / BS_VOTES, last, [&](bs_i64 at) {
      const bs_u64 key = keys[at];
      if (key == NO_BITS) return false;
      const bs_i64 j = layer.row_of(at);
      return bound_in(j).beyond(key, (bs_u32)columns[layer.place(j, at)]);
    });
    for (bs_i64 j = threadIdx.x; j <= k; j += BS_BLOCK) {
      const bs_i64 begin = layer.begin(j);
      if (first <= begin && begin < end) ends[j] = bs_kept_before(pass.votes, first, begin);
    }
    bs_visit_kept(pass.votes, first, [&](bs_i64 at, bs_i64 to) {
      const bs_i64 j = layer.row_of(at), place = layer.place(j, at);
      const Bound out = bound_in(j);
      picks[to] = columns[place];
      if (table) numbers[bs_slot<BS_NUMBERED>(table, starts, j, (bs_u32)columns[place])] = (bs_u32)to;
      inclusion[to] = bs_inclusion(layer.weight(place), out.all ? no_key() : __longlong_as_double((bs_i64)out.key));
    });
  }
}

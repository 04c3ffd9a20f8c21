// A hop on relations as its kernels see it: the relations as an array of words, and a record for each row that draws.
// A segment holds the rows of one minibatch and one relation. Segments lie minibatch by minibatch and, within one, by the source type of
// their relations: so the vertices that a hop finds of one minibatch and type lie side by side.
#pragma once
#include "hubs.h"
#include "philox.h"
#include "window_row.h"

// RELATION of bulksample/backends/cuda/relations.py.
struct Relation {
  const bs_i64* indptr;
  const bs_i32* indices;
  const bs_i64* values;  // or null: ones
  const BsTimed* timed;  // its entries, those of a row in the order of time; or null
  bs_i64 fanout;
  bs_u64 seed;
  bs_u32 tag;
  bs_i32 law;
  bs_u32 flags;
  bs_i32 source, destination, unused;
};
constexpr bs_u32 BY_PLACE = 1, LAST = 2, STRICT = 4;  // keys name positions; the newest are taken; what equals the end is left out

// The candidates of a row and the words of its counters: 32 bytes.
struct DrawnRow {
  bs_i64 begin;  // of the row in A
  bs_i32 low;    // of the window, in the order of time; or -1: the whole row
  bs_u32 length;
  bs_u32 name, minibatch;
  bs_i32 tree;
  bs_i32 relation;  // or ~relation if it takes all candidates
};

// What is drawn of an edge: its source, its position in A and, unless null, its tree.
struct Picks {
  bs_i32* columns;
  bs_i64* entries;
  bs_i32* trees;
};

// Hubs that draw at most 32 neighbours by key, or by weight from a whole row: `relation_rows` lists them. All 0 before: HUB_WORDS of
// bulksample/backends/cuda/relations.py.
struct RelationHubs {
  Hubs hubs;
  bs_u64 ticket;
  bs_u64 known[BS_HUBS];            // 1 once the sums of all slices of a hub are there
  bs_u64 sums[BS_HUBS][BS_SLICES];  // of weights
};

__device__ __forceinline__ bool is_hub(const Relation& relation, const DrawnRow& row) {
  if (row.relation < 0 || row.length <= BS_HUB || relation.fanout == 0) return false;
  return relation.law == WEIGHTED ? row.low < 0 : bs_by_key(relation.law) && relation.fanout <= 32;
}

__device__ __forceinline__ const Relation& relation_of(const Relation* relations, const DrawnRow& row) {
  return relations[row.relation < 0 ? ~row.relation : row.relation];
}

// The position in its row of candidate i.
__device__ __forceinline__ bs_i32 position_of(const Relation& relation, const DrawnRow& row, bs_i64 i) {
  return row.low < 0 ? (bs_i32)i : relation.timed[row.begin + row.low + i].position;
}

__device__ __forceinline__ bs_i64 weight_of(const Relation& relation, const DrawnRow& row, bs_i32 position) {
  return relation.values ? relation.values[row.begin + position] : 1;
}

__device__ __forceinline__ BsStream stream_of(const Relation& relation, const DrawnRow& row) {
  return BsStream{relation.seed, relation.law == LABOR ? 0u : row.name, row.minibatch, relation.tag};
}

__device__ __forceinline__ void write_pick(const Picks& picks, bs_i64 place, const Relation& relation, const DrawnRow& row, bs_i32 position) {
  const bs_i64 entry = row.begin + position;
  picks.columns[place] = relation.indices[entry];
  picks.entries[place] = entry;
  if (picks.trees) picks.trees[place] = row.tree;
}

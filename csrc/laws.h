// The laws by which a row draws, and whether it takes all of its candidates: decided once for every walk over rows.
#pragma once
#include "host_device.h"

enum Law { UNIFORM = 0, REPLACEMENT = 1, RACE = 2, LABOR = 3, WEIGHTED = 4 };  // bulksample.rng.Law

BS_HD bool bs_by_key(int law) { return law == RACE || law == LABOR; }
BS_HD bool bs_weighs(int law) { return bs_by_key(law) || law == WEIGHTED; }

// True if a draw of `fanout` (-1: all) takes all `length` candidates. A law that weighs leaves those of weight 0 out, so it looks at each.
BS_HD_INLINE bool bs_takes_all(int law, bs_i64 fanout, bool weights, bs_i64 length) {
  if (length == 0) return true;
  if (fanout < 0) return !(bs_weighs(law) && weights);
  if (law == REPLACEMENT || law == WEIGHTED) return false;
  return length <= fanout && !(bs_by_key(law) && weights);
}

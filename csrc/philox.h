// Philox4x32-10 (Salmon et al., SC 2011): counter-based, so every device draws the same numbers.
// The counter spells out what is drawn; bulksample/rng.py explains its four words.
#pragma once
#include "host_device.h"

struct BsWords {
  bs_u32 v[4];
};

BS_HD BsWords bs_philox(BsWords c, bs_u32 k0, bs_u32 k1) {
  for (int round = 0; round < 10; ++round) {
    const bs_u64 p0 = 0xD2511F53ull * c.v[0], p1 = 0xCD9E8D57ull * c.v[2];
    c = BsWords{{(bs_u32)(p1 >> 32) ^ c.v[1] ^ k0, (bs_u32)p1, (bs_u32)(p0 >> 32) ^ c.v[3] ^ k1, (bs_u32)p0}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// All of the counter but its index.
struct BsStream {
  bs_u64 seed;
  bs_u32 vertex, minibatch, tag;
};

BS_HD BsWords bs_block(const BsStream& s, bs_u32 index) {
  return bs_philox(BsWords{{index, s.vertex, s.minibatch, s.tag}}, (bs_u32)s.seed, (bs_u32)(s.seed >> 32));
}

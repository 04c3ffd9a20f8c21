// What follows the products of a layer in one pass, y = dropout(act(z + b)), its gradient, and dropout of sparse entries. dropout_row.h
// decides. A warp takes a patch of 256 numbers, in 32 blocks: a lane makes the random words of one block and packs what they decide into 8
// bits, and whoever writes a number finds its bit by a shuffle. So numbers are read and written side by side, 16 bytes a lane where rows are
// made of 16 bytes, whatever the place of their random words.
//
// By arithmetic, on an H200: a patch reads 1 KiB and writes 1 KiB, which at 4.8 TB/s takes one of 132 multiprocessors 100 cycles of 1.8 GHz.
// Compiled for it, a warp goes through some 240 instructions for a patch, of which ten rounds are 20 wide products, 20 XORs and 20 sums: 60
// cycles of four schedulers. So memory is the floor. A warp asks for its numbers before it draws; 40 registers let 48 warps do so at once.
#include "device.h"
#include "dropout_row.h"

constexpr bs_i32 PATCH = 32 * (bs_i32)BS_DROPOUT_LANES;  // numbers of a warp
constexpr bs_i32 TILE = BS_BLOCK / 32 * PATCH;           // numbers of the warps of a block

struct alignas(16) Tile {
  float of[TILE];
};

// Neighbouring numbers that a lane reads at once.
template <bs_i32 V>
struct alignas(4 * V) Few {
  float of[V];
};

// Chooses log, so that patches are 32 >> log rows of 8 << log columns: up to `most`, and as wide as a row needs. Where lanes take V numbers
// each, the numbers of a step are whole rows of a patch, or a part of its only row.
template <bs_i32 V>
__device__ __forceinline__ bs_i32 patch_log(bs_i64 f, bs_i32 most) {
  bs_i32 log = 0;
  while (log < most && (8 << log) < f) ++log;
  return log < 5 && (8 << log) > 32 * V ? 2 : log;
}

// The numbers of a patch that this lane reads and writes: V neighbours at each of up to 8 / V steps.
template <bs_i32 V>
struct Share {
  static constexpr bs_i32 STEPS = (bs_i32)BS_DROPOUT_LANES / V;
  bs_i64 at, column;             // of the first number
  bs_i64 stride, column_stride;  // from step to step
  bs_i32 count;                  // of steps within the matrix

  __device__ __forceinline__ Share(bs_i64 first_row, bs_i64 first_column, bs_i64 rows, bs_i64 f, bs_i32 log) {
    const bs_i32 x = V * bs_lane(), width = 8 << log, down = 32 * V >> (3 + log);
    const bs_i64 row = first_row + (x >> (3 + log));
    column = first_column + (x & (width - 1));
    at = row * f + column;
    column_stride = down ? 0 : 32 * V;
    stride = down ? down * f : column_stride;
    count = 0;
#pragma unroll
    for (bs_i32 s = 0; s < STEPS; ++s) count += row + s * down < rows && column + s * column_stride < f;
  }
};

// The 8 bits of the block of this lane: bit i is set if number i is kept.
__device__ __forceinline__ bs_u32 kept_bits(const BsMask& mask, bs_i64 row, bs_i64 column, bs_i64 rows, bs_i64 f) {
  bs_u32 bits = 0;
  if (row >= rows || column >= f) return bits;
  const BsWords words = bs_dropout_words(mask, row, column / BS_DROPOUT_LANES);
#pragma unroll
  for (int i = 0; i < (int)BS_DROPOUT_LANES; ++i) bits |= (bs_u32)(bs_dropout_half(words, i) < mask.kept) << i;
  return bits;
}

// Calls write(step, share, numbers of `in`, numbers of `beside`, bits of those that are kept) for the share of each lane. A warp calls it
// together. `beside` may be null, and so may the vertices of the mask: all are kept.
template <bs_i32 V, class Write>
__device__ __forceinline__ void over_patch(bs_i64 row, bs_i64 column, bs_i64 rows, bs_i64 f, bs_i32 log, const BsMask& mask,
                                           const float* in, const float* beside, Write write) {
  const Share<V> share(row, column, rows, f, log);
  Few<V> own[Share<V>::STEPS] = {}, other[Share<V>::STEPS] = {};
#pragma unroll
  for (bs_i32 s = 0; s < Share<V>::STEPS; ++s) {
    if (s >= share.count) continue;
    own[s] = *(const Few<V>*)(in + share.at + s * share.stride);
    if (beside) other[s] = *(const Few<V>*)(beside + share.at + s * share.stride);
  }
  bs_u32 bits = 0xFFu;
  if (mask.vertices) bits = kept_bits(mask, row + (bs_lane() >> log), column + 8 * (bs_lane() & ((1 << log) - 1)), rows, f);
#pragma unroll
  for (bs_i32 s = 0; s < Share<V>::STEPS; ++s) {
    const bs_i32 x = V * (32 * s + bs_lane());
    const bs_u32 kept = __shfl_sync(BS_ALL, bits, x / (bs_i32)BS_DROPOUT_LANES) >> (x & ((bs_i32)BS_DROPOUT_LANES - 1));
    if (s < share.count) write(s, share, own[s], other[s], kept);
  }
}

// The number that is written for x: times the scale if it is kept, else zero.
__device__ __forceinline__ float masked(float x, bool kept, float scale) {
  const float scaled = x * scale;
  return kept ? scaled : 0.0f;
}

template <bs_i32 V>
__device__ __forceinline__ void write_rows(const float* z, const float* bias, bool relu, const BsMask& mask, bs_i64 rows, bs_i64 f,
                                           float* out) {
  const float scale = mask.vertices ? mask.scale() : 1.0f;
  const bs_i32 log = patch_log<V>(f, 5), height = 32 >> log, width = 8 << log;
  const bs_i64 across = (f + width - 1) / width, patches = (rows + height - 1) / height * across;
  for (bs_i64 task = bs_thread() / 32; task < patches; task += bs_threads() / 32) {
    const bs_i64 down = across == 1 ? task : task / across;
    over_patch<V>(down * height, (task - down * across) * width, rows, f, log, mask, z, nullptr,
                  [&](bs_i32 s, const Share<V>& share, Few<V> made, const Few<V>&, bs_u32 kept) {
      if (bias) {
        const Few<V> b = *(const Few<V>*)(bias + share.column + s * share.column_stride);
#pragma unroll
        for (bs_i32 i = 0; i < V; ++i) made.of[i] += b.of[i];
      }
#pragma unroll
      for (bs_i32 i = 0; i < V; ++i) made.of[i] = masked(relu ? bs_relu(made.of[i]) : made.of[i], kept >> i & 1u, scale);
      *(Few<V>*)(out + share.at + s * share.stride) = made;
    });
  }
}

// y from z, which may be `out` itself. `bias` may be null; without vertices nothing is dropped. Two kernels, so that neither holds the
// registers of the other: for rows and arrays that are made of 16 bytes, and for all others.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) epilogue_fours(const float* z, const float* __restrict__ bias, bs_i32 relu,
                                                                      bs_u64 key, bs_u32 minibatch, const bs_i32* __restrict__ vertices,
                                                                      const bs_i32* __restrict__ trees, bs_u32 kept, bs_i64 rows,
                                                                      bs_i64 f, float* out) {
  write_rows<4>(z, bias, relu, BsMask{key, minibatch, kept, vertices, trees}, rows, f, out);
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) epilogue_ones(const float* z, const float* __restrict__ bias, bs_i32 relu,
                                                                     bs_u64 key, bs_u32 minibatch, const bs_i32* __restrict__ vertices,
                                                                     const bs_i32* __restrict__ trees, bs_u32 kept, bs_i64 rows, bs_i64 f,
                                                                     float* out) {
  write_rows<1>(z, bias, relu, BsMask{key, minibatch, kept, vertices, trees}, rows, f, out);
}

// A block takes 256 rows of up to 32 columns, a tile of a patch for each warp after the other, and the threads of its first warp add up the
// tile before: each a column, row after row. Two tiles take turns, so a barrier after each is enough.
template <bs_i32 V>
__device__ __forceinline__ void write_gradient(const float* grad, const float* y, const BsMask& mask, bs_i64 rows, bs_i64 f, float* out,
                                               float* sums, Tile* tiles) {
  const float scale = mask.scale();
  const BsMask drawn{mask.key, mask.minibatch, mask.kept, y ? nullptr : mask.vertices, mask.trees};
  const bs_i32 log = patch_log<V>(f, 2), height = 32 >> log, width = 8 << log, together = BS_BLOCK / 32 * height;
  const bs_i32 thread = (bs_i32)threadIdx.x, warp = thread / 32;
  const bs_i64 across = (f + width - 1) / width, tasks = (rows + BS_BIAS_ROWS - 1) / BS_BIAS_ROWS * across;
  for (bs_i64 task = blockIdx.x; task < tasks; task += gridDim.x) {
    const bs_i64 down = task / across, begin = down * BS_BIAS_ROWS, column = (task - down * across) * width;
    const bs_i64 end = begin + BS_BIAS_ROWS < rows ? begin + BS_BIAS_ROWS : rows;
    const bool adds = sums && thread < width && column + thread < f;
    float sum = 0.0f;
    bs_i32 turn = 0;
    for (bs_i64 first = begin; first < end; first += together, turn ^= 1) {
      over_patch<V>(first + warp * height, column, rows, f, log, drawn, grad, y,
                    [&](bs_i32 s, const Share<V>& share, Few<V> made, const Few<V>& of, bs_u32 kept) {
#pragma unroll
        for (bs_i32 i = 0; i < V; ++i) made.of[i] = masked(made.of[i], y ? !(of.of[i] <= 0.0f) : kept >> i & 1u, scale);
        *(Few<V>*)(out + share.at + s * share.stride) = made;
        if (sums) *(Few<V>*)(tiles[turn].of + warp * PATCH + V * (32 * s + bs_lane())) = made;
      });
      if (!sums) continue;
      __syncthreads();
      const bs_i32 count = (bs_i32)(end - first < together ? end - first : together);
      if (adds)
#pragma unroll 8
        for (bs_i32 r = 0; r < count; ++r) sum += tiles[turn].of[r * width + thread];
    }
    if (adds) sums[down * f + column + thread] = sum;
    if (sums) __syncthreads();
  }
}

// dz from dy, which may be `out` itself, and the sums of 256 rows each if `sums` is not null: shape (ceil(rows / 256), f). `y` is null
// unless relu has made it.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) epilogue_gradient_fours(const float* grad, const float* y, bs_u64 key,
                                                                               bs_u32 minibatch, const bs_i32* __restrict__ vertices,
                                                                               const bs_i32* __restrict__ trees, bs_u32 kept, bs_i64 rows,
                                                                               bs_i64 f, float* out, float* __restrict__ sums) {
  __shared__ Tile tiles[2];
  write_gradient<4>(grad, y, BsMask{key, minibatch, kept, vertices, trees}, rows, f, out, sums, tiles);
}

extern "C" __global__ void __launch_bounds__(BS_BLOCK) epilogue_gradient_ones(const float* grad, const float* y, bs_u64 key,
                                                                              bs_u32 minibatch, const bs_i32* __restrict__ vertices,
                                                                              const bs_i32* __restrict__ trees, bs_u32 kept, bs_i64 rows,
                                                                              bs_i64 f, float* out, float* __restrict__ sums) {
  __shared__ Tile tiles[2];
  write_gradient<1>(grad, y, BsMask{key, minibatch, kept, vertices, trees}, rows, f, out, sums, tiles);
}

// db from the sums of blocks of rows, added in float64 in their order. A block takes 8 columns: all its threads read, the first 8 add.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) bias_sums(const float* __restrict__ sums, bs_i64 blocks, bs_i64 f,
                                                                 float* __restrict__ bias) {
  constexpr bs_i32 COLUMNS = 8, ROWS = TILE / COLUMNS, STEP = BS_BLOCK / COLUMNS;
  __shared__ Tile tiles[2];
  const bs_i32 lane = (bs_i32)threadIdx.x % COLUMNS, row = (bs_i32)threadIdx.x / COLUMNS;
  for (bs_i64 slice = blockIdx.x; slice * COLUMNS < f; slice += gridDim.x) {
    const bs_i64 column = slice * COLUMNS + lane;
    double total = 0.0;
    bs_i32 turn = 0;
    for (bs_i64 first = 0; first < blocks; first += ROWS, turn ^= 1) {
#pragma unroll
      for (bs_i32 r = row; r < ROWS; r += STEP)
        if (first + r < blocks && column < f) tiles[turn].of[r * COLUMNS + lane] = sums[(first + r) * f + column];
      __syncthreads();
      const bs_i32 count = (bs_i32)(blocks - first < ROWS ? blocks - first : ROWS);
      if (row == 0 && column < f)
#pragma unroll 8
        for (bs_i32 r = 0; r < count; ++r) total += tiles[turn].of[r * COLUMNS + lane];
    }
    if (row == 0 && column < f) bias[column] = (float)total;
    __syncthreads();
  }
}

// Entries of a sparse row are far apart, so each makes a block of words. Vertex and tree of a row travel to its entries together.
extern "C" __global__ void __launch_bounds__(BS_BLOCK) drop_entries(const bs_i64* __restrict__ indptr, const bs_i32* __restrict__ indices,
                                                                    const float* __restrict__ values, bs_u64 key, bs_u32 minibatch,
                                                                    const bs_i32* __restrict__ vertices, const bs_i32* __restrict__ trees,
                                                                    bs_u32 kept, bs_i64 rows, float* __restrict__ out) {
  const BsMask mask{key, minibatch, kept, vertices, trees};
  const float scale = mask.scale();
  bs_walk(
      indptr, rows, [&](bs_i64 r) { return (bs_i64)((bs_u64)(trees ? (bs_u32)trees[r] : 0u) << 32 | (bs_u32)vertices[r]); },
      [&](bs_i64, bs_i64 at, bs_i64 names) {
        const bs_i32 vertex = (bs_i32)(bs_u32)names, tree = (bs_i32)((bs_u64)names >> 32), column = indices[at];
        const BsWords words = bs_dropout_words(BsMask{key, minibatch, kept, &vertex, &tree}, 0, column / BS_DROPOUT_LANES);
        out[at] = masked(values[at], bs_dropout_half(words, column % (bs_i32)BS_DROPOUT_LANES) < kept, scale);
      });
}

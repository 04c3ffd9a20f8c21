// Rows to records of b-bit codes and a header, and back: grid, code and bits are decided in quantise_row.h.
#include "native.h"
#include "quantise_row.h"

namespace {

using Byte = unsigned char;

constexpr bs_i64 BLOCK = 64;  // rows handed to a thread at once

bs_i64 code_bytes(bs_i64 f, int b) { return (f * b + 7) / 8; }

// Integers that order as floats do, so that a minimum vectorises.
BS_HD bs_i32 ordered(float x) {
  const bs_i32 bits = (bs_i32)bs_float_bits(x);
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}
float unordered(bs_i32 i) { return bs_bits_float((bs_u32)(i ^ ((i >> 31) & 0x7FFFFFFF))) + 0.0f; }  // no negative zero

BS_CLONES bs_u32 extremes(const float* x, bs_i64 f, bs_i32* lo, bs_i32* hi) {
  bs_i32 low = 0x7FFFFFFF, high = -0x7FFFFFFF - 1;
  bs_u32 largest = 0;
  for (bs_i64 j = 0; j < f; ++j) {
    const bs_i32 key = ordered(x[j]);
    const bs_u32 size = bs_float_bits(x[j]) & 0x7FFFFFFFu;
    low = key < low ? key : low;
    high = key > high ? key : high;
    largest = size > largest ? size : largest;
  }
  *lo = low;
  *hi = high;
  return largest;
}

BS_CLONES void fill_words(const BsStream& stream, bs_i64 blocks, bs_u32* words) {
  for (bs_i64 i = 0; i < blocks; ++i) {
    const BsWords block = bs_block(stream, (bs_u32)i);
    for (int j = 0; j < 4; ++j) words[4 * i + j] = block.v[j];
  }
}

BS_CLONES void fill_codes(const float* x, bs_i64 f, BsGrid grid, bs_u32 top, const bs_u32* words, Byte* codes) {
  for (bs_i64 j = 0; j < f; ++j) codes[j] = (Byte)bs_code(x[j], grid, top, words[j]);
}

// `codes` is padded with zeros to whole bytes.
void pack(const Byte* codes, bs_i64 f, int b, Byte* out) {
  const int together = 8 / b;
  for (bs_i64 i = 0; i < code_bytes(f, b); ++i) {
    bs_u32 byte = 0;
    for (int j = 0; j < together; ++j) byte |= (bs_u32)codes[i * together + j] << (j * b);
    out[i] = (Byte)byte;
  }
}

void store(bs_u32 word, int bytes, Byte* out) {
  for (int i = 0; i < bytes; ++i) out[i] = (Byte)(word >> (8 * i));
}

bs_u32 load(const Byte* in, int bytes) {
  bs_u32 word = 0;
  for (int i = 0; i < bytes; ++i) word |= (bs_u32)in[i] << (8 * i);
  return word;
}

// Records, and the first row that holds a number which is not below 2^126 in size, or -1.
py::tuple quantise(In<float> x, int b, bool wide, In<bs_i32> names, bool nearest, bs_u64 seed, bs_u32 tag, bs_u32 receiver, int threads) {
  if (x.ndim() != 2 || names.size() != x.shape(0)) throw py::value_error("quantise takes a matrix and a name for each of its rows");
  const bs_i64 m = x.shape(0), f = x.shape(1), packed = code_bytes(f, b);
  const int half = wide ? 4 : 2;
  const bs_u32 top = (1u << b) - 1u;
  py::array_t<Byte> records({m, packed + 2 * half});
  const float* in = x.data();
  const bs_i32* name = names.data();
  Byte* out = records.mutable_data();
  std::atomic<bs_i64> refused{m};
  {
    py::gil_scoped_release nogil;
    for_blocks(m, BLOCK, threads, [&](bs_i64 first, bs_i64 last) {
      std::vector<bs_u32> words((f + 3) / 4 * 4, BS_NEAREST);
      std::vector<Byte> codes(f + 8, 0);
      for (bs_i64 r = first; r < last; ++r) {
        const float* row = in + r * f;
        Byte* record = out + r * (packed + 2 * half);
        bs_i32 lo = 0, hi = 0;
        if (f && extremes(row, f, &lo, &hi) >= BS_TOO_LARGE) {
          for (bs_i64 before = refused; r < before && !refused.compare_exchange_weak(before, r);) {
          }
          continue;
        }
        const BsHeader header = bs_header(unordered(lo), unordered(hi), top, wide);
        if (bs_is_constant(header, wide)) {
          std::fill(codes.begin(), codes.end(), (Byte)0);
          codes[0] = (Byte)(bs_float_bits(unordered(lo)) & 1u);
        } else {
          if (!nearest) fill_words(BsStream{seed, (bs_u32)name[r], receiver, tag}, (f + 3) / 4, words.data());
          fill_codes(row, f, bs_grid(header, wide), top, words.data(), codes.data());
        }
        pack(codes.data(), f, b, record);
        store(header.zero, half, record + packed);
        store(header.step, half, record + packed + half);
      }
    });
  }
  return py::make_tuple(records, refused < m ? refused.load() : -1);
}

py::array_t<float> dequantise(In<Byte> records, bs_i64 f, int b, bool wide, int threads) {
  const bs_i64 packed = code_bytes(f, b);
  const int half = wide ? 4 : 2;
  if (records.ndim() != 2 || records.shape(1) != packed + 2 * half) throw py::value_error("records do not fit the width of the rows");
  const bs_i64 m = records.shape(0);
  py::array_t<float> x({m, f});
  const Byte* in = records.data();
  float* out = x.mutable_data();
  py::gil_scoped_release nogil;
  for_blocks(m, BLOCK, threads, [&](bs_i64 first, bs_i64 last) {
    for (bs_i64 r = first; r < last; ++r) {
      const Byte* record = in + r * (packed + 2 * half);
      float* row = out + r * f;
      const BsHeader header{load(record + packed, half), load(record + packed + half, half)};
      if (f && bs_is_constant(header, wide)) {
        std::fill(row, row + f, bs_constant(header, record[0]));
        continue;
      }
      const BsGrid grid = bs_grid(header, wide);
      for (bs_i64 j = 0; j < f; ++j) row[j] = bs_decoded(bs_code_at(record, j, b), grid);
    }
  });
  return x;
}

}  // namespace

void bind_quantiser(py::module_& m) {
  m.def("quantise", &quantise, py::arg("rows").noconvert(), py::arg("bits"), py::arg("wide"), py::arg("names").noconvert(),
        py::arg("nearest"), py::arg("seed"), py::arg("tag"), py::arg("receiver"), py::arg("threads"));
  m.def("dequantise", &dequantise, py::arg("records").noconvert(), py::arg("width"), py::arg("bits"), py::arg("wide"), py::arg("threads"));
}

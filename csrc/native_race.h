// The s smallest keys of a stream of candidates. Every candidate needs its random words, but few need their logarithm:
// a bound from below, 2^57 (1 - u / 2^64) / ln 2 <= -log2(u / 2^64), rules out most once there are s better ones.
#pragma once
#include <limits>

#include "native.h"
#include "race_row.h"

constexpr int CHUNK = 256;  // candidates whose words are made at once, at most
constexpr int GROUP = 16;   // candidates that are skipped together

// Words 0 and 1 of the blocks named by so many columns, a multiple of GROUP.
void two_words(const BsStream& stream, const bs_i32* columns, int count, bs_u32* low, bs_u32* high);

// Finds the candidates whose key may be at most `bound`, and the u of each; returns how many. `weights` may be null: ones.
int promising(const BsStream& stream, const bs_i32* columns, const double* weights, int count, double bound, bs_u64* u, bs_i32* which);

// The `keep` smallest keys, in memory for about twice as many.
class Race {
 public:
  struct Entry {
    double key;
    bs_i32 column;
    bs_i32 place;  // where the candidate stands in its row
  };
  explicit Race(bs_i64 keep) : keep_(keep), bound_(std::numeric_limits<double>::infinity()) {}
  // Candidates in the order of their columns; those of weight 0 have no key. `Weight` is an integer or float64.
  template <class Weight>
  void scan(const BsStream& stream, const bs_i32* columns, const Weight* weights, bs_i64 count) {
    double weight[CHUNK];
    bs_u64 u[CHUNK];
    bs_i32 which[CHUNK];
    bs_i64 size = std::clamp<bs_i64>((2 * keep_ + GROUP - 1) / GROUP * GROUP, 2 * GROUP, CHUNK);  // and each time as many as before together: about `keep_` beat the bound
    for (bs_i64 first = 0; first < count; first += size, size = std::min<bs_i64>(first, CHUNK)) {
      const int chunk = (int)std::min(size, count - first);
      if (weights) std::copy_n(weights + first, chunk, weight);
      const int kept = promising(stream, columns + first, weights ? weight : nullptr, chunk, bound_, u, which);
      for (int i = 0; i < kept; ++i) {
        const int at = which[i];
        if (weights && !(weight[at] > 0)) continue;
        const double key = (double)bs_neg_log2(u[i]) / (weights ? weight[at] : 1.0);
        if (key <= bound_) entries_.push_back({key, columns[first + at], (bs_i32)(first + at)});
      }
      if ((bs_i64)entries_.size() >= keep_ + std::min<bs_i64>(keep_, 256)) shrink();
    }
  }
  // The survivors; where there were more candidates than `keep`, the smallest of them.
  std::vector<Entry>& finish() {
    if ((bs_i64)entries_.size() > keep_) shrink();
    return entries_;
  }
  void restart() {
    entries_.clear();
    bound_ = std::numeric_limits<double>::infinity();
  }
  static bool before(const Entry& a, const Entry& b) { return bs_before(a.key, a.column, b.key, b.column); }
  static bool by_column(const Entry& a, const Entry& b) { return a.column < b.column; }

 private:
  void shrink() {
    if (keep_ == 0) return entries_.clear();
    auto sooner = [](const Entry& a, const Entry& b) { return before(a, b); };  // a lambda is inlined, a function pointer is not
    std::nth_element(entries_.begin(), entries_.begin() + (keep_ - 1), entries_.end(), sooner);
    entries_.resize(keep_);
    bound_ = entries_.back().key;
  }
  bs_i64 keep_;
  double bound_;
  std::vector<Entry> entries_;
};

// Keyed draws from one row of A.
class RaceRow {
 public:
  explicit RaceRow(bs_i64 s) : race_(s) {}
  // Writes the columns of the s smallest keys in ascending order, and their places in the row unless null; returns how many there are.
  bs_i64 row(const BsStream& stream, const bs_i32* columns, const bs_i64* weights, bs_i64 degree, bs_i32* out, bs_i32* places) {
    race_.restart();
    race_.scan(stream, columns, weights, degree);
    auto& kept = race_.finish();
    std::sort(kept.begin(), kept.end(), Race::by_column);
    for (const auto& entry : kept) *out++ = entry.column;
    if (places)
      for (const auto& entry : kept) *places++ = entry.place;
    return (bs_i64)kept.size();
  }

 private:
  Race race_;
};

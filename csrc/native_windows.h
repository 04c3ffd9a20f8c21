// Rows of A in windows of time: positions [lo, hi) of a row that lies sorted by time, found by binary search down to a few entries, which lie
// in neighboring cache lines and are counted. A block of rows passes through the steps together, and each step prefetches what the next one
// reads: first the row pointers, then the entries in the order of time, which hold all that a window is drawn from.
#pragma once
#include "native_rows.h"
#include "window_row.h"

struct TimedRow : Row {
  bs_i64 start, end;
};

struct Times {
  const BsTimed* entries;  // of A, those of a row in the order of time
  bool starts;             // windows have a beginning
  bool strict;             // leave out what equals the end
  bool last;               // take the last s, not random ones
};

class WindowFlight {
 public:
  WindowFlight(const Drawing& drawing, const Times& times) : d_(drawing), t_(times), laws_(drawing) {}

  // Appends the picks of rows 0 .. rows - 1 to `columns`, their positions in A to `entries`, and the end of each row to `ends`; see
  // RowFlight. `row(r)` returns a TimedRow.
  template <class VertexOf, class RowOf, class Sink>
  void run(bs_i64 rows, VertexOf vertex, RowOf row, Buffer<bs_i32>& columns, Buffer<bs_i64>& entries, Buffer<bs_i64>& ends, Sink& sink) {
    ends.room(rows);
    for (bs_i64 r = 0; r < std::min(rows, BLOCK); ++r) foretell(&d_.indptr[vertex(r)]);
    for (bs_i64 next = 0; next < rows + BLOCK; next += BLOCK) {
      for (bs_i64 r = next + BLOCK; r < std::min(rows, next + 2 * BLOCK); ++r) foretell(&d_.indptr[vertex(r)]);
      for (bs_i64 r = next; r < std::min(rows, next + BLOCK); ++r) begin(blocks_[next / BLOCK % 2][r - next], row(r));
      if (next == 0) continue;
      Window* windows = blocks_[(next / BLOCK - 1) % 2];
      const bs_i64 count = std::min(BLOCK, rows - next + BLOCK), before = columns.size();
      find(windows, count);
      bs_i64 drawn = 0;
      for (bs_i64 i = 0; i < count; ++i) drawn = draw(windows[i], drawn);
      for (bs_i64 i = 0; i < count; ++i) land(windows[i], columns, entries, ends);
      sink.settle(before, columns.size());
    }
  }

 private:
  static constexpr bs_i64 BLOCK = 32;  // rows; the pointers and entries of a block are on their way while that before it is drawn
  static constexpr bs_i64 FEW = 8, LINE = 4;  // entries; a cache line holds LINE
  static constexpr bs_i64 SHORT = 256;        // a row of so many is sorted by the bits of a few words

  struct Window {
    TimedRow row;
    bs_i64 begin, degree;
    BsBisection search;      // its `low` is the end that was found
    bs_i64 low, high;
    BsCandidates taken;
    bs_i64 first, count;  // of its positions in `positions_`
  };

  void begin(Window& w, const TimedRow& row) const {
    const bs_i64* p = d_.indptr + row.vertex;
    const bs_i64 degree = p[1] - p[0];
    w = Window{row, p[0], degree, {0, degree}, 0, degree, {}, 0, 0};
    ask(w);
  }

  // lo and hi of all rows of the block, step by step together.
  void find(Window* windows, bs_i64 count) const {
    search(windows, count, !t_.strict, [](const Window& w) { return w.row.end; });
    for (bs_i64 i = 0; i < count; ++i) {
      Window& w = windows[i];
      w.high = w.search.low;
      if (t_.starts) w.search = BsBisection{0, w.high}, ask(w);
    }
    if (!t_.starts) return;
    search(windows, count, false, [](const Window& w) { return w.row.start; });
    for (bs_i64 i = 0; i < count; ++i) windows[i].low = windows[i].search.low;
  }

  // Bisects until few times are left, and counts those without a branch that depends on one.
  template <class Wanted>
  void search(Window* windows, bs_i64 count, bool after_equal, Wanted wanted) const {
    for (bool open = true; open;) {
      open = false;
      for (bs_i64 i = 0; i < count; ++i) {
        Window& w = windows[i];
        if (few(w.search)) continue;
        w.search.narrow(t_.entries[w.begin + w.search.middle()].time, wanted(w), after_equal);
        open |= !few(w.search);
        ask(w);
      }
    }
    for (bs_i64 i = 0; i < count; ++i) {
      BsBisection& left = windows[i].search;
      const BsTimed* row = t_.entries + windows[i].begin;
      const bs_i64 end = wanted(windows[i]);
      bs_i64 found = left.low;
      for (bs_i64 p = left.low; p < left.high; ++p) found += after_equal ? row[p].time <= end : row[p].time < end;
      left.low = left.high = found;
    }
  }

  static bool few(const BsBisection& search) { return search.high - search.low <= FEW; }

  // Prefetches what a search reads next: an entry in the middle, or the few that are left.
  void ask(const Window& w) const {
    const BsTimed* row = t_.entries + w.begin;
    if (!few(w.search)) return foretell(row + w.search.middle());
    for (bs_i64 p = w.search.low; p < w.search.high; p += LINE) foretell(row + p);
    if (w.search.open()) foretell(row + w.search.high - 1);
  }

  // Draws positions in the order of time, which follow the `drawn` ones of the rows before; returns how many there are then.
  bs_i64 draw(Window& w, bs_i64 drawn) {
    w.taken = bs_candidates(w.low, w.high, w.degree, d_.law, d_.fanout, d_.values != nullptr, t_.last);
    const bs_u32 length = (bs_u32)w.taken.length;
    w.first = drawn;
    const bool all = w.taken.all || bs_weighs(d_.law);
    w.count = all ? length : d_.fanout;
    if ((bs_i64)positions_.size() < w.first + w.count) positions_.resize((std::size_t)std::max<bs_i64>(w.first + w.count, 2 * (bs_i64)positions_.size()));
    bs_i32* out = positions_.data() + w.first;
    if (all) {
      for (bs_u32 p = 0; p < length; ++p) out[p] = (bs_i32)(w.taken.low + p);
    } else {
      laws_.draw_row(w.row, length, (bs_u32*)out);
      for (bs_i64 p = 0; p < w.count; ++p) out[p] += (bs_i32)w.taken.low;
    }
    const BsTimed* row = t_.entries + w.begin;
    for (bs_i64 p = 0; p < w.count; p += all ? LINE : 1) foretell(row + out[p]);
    return drawn + w.count;
  }

  void land(const Window& w, Buffer<bs_i32>& columns, Buffer<bs_i64>& entries, Buffer<bs_i64>& ends) {
    bs_i32* positions = positions_.data() + w.first;
    const bool choose = bs_weighs(d_.law) && !w.taken.all;
    const bs_i64 most = choose ? std::max<bs_i64>(d_.fanout, 0) : w.count;
    bs_i32* out = columns.room(choose ? std::max(most, w.count) : most);
    bs_i64 *entry = entries.room(most), count = w.count;
    sort(w, positions, out);
    if (choose) {
      count = by_weight(w, positions, out);
      positions = chosen_.data();
      for (bs_i64 p = 0; p < count; ++p) out[p] = d_.indices[w.begin + positions[p]];
    }
    for (bs_i64 p = 0; p < count; ++p) entry[p] = w.begin + positions[p];
    columns.add(count);
    entries.add(count);
    ends.push(columns.size());
  }

  // Turns positions in the order of time into those in the row, ascending, and reads their columns. Distinct ones of a short row are sorted
  // by setting a bit for each.
  void sort(const Window& w, bs_i32* positions, bs_i32* columns) {
    const BsTimed* row = t_.entries + w.begin;
    if (w.degree <= SHORT && d_.law != REPLACEMENT) {
      bs_u64 bits[SHORT / 64] = {};
      bs_i32 column[SHORT];
      for (bs_i64 p = 0; p < w.count; ++p) {
        const BsTimed& entry = row[positions[p]];
        bits[entry.position >> 6] |= 1ull << (entry.position & 63);
        column[entry.position] = entry.column;
      }
      for (bs_i32 word = 0; 64 * word < w.degree; ++word)
        for (bs_u64 left = bits[word]; left; left &= left - 1) {
          *positions = 64 * word + (bs_i32)__builtin_ctzll(left);
          *columns++ = column[*positions++];
        }
    } else {
      pairs_.clear();
      for (bs_i64 p = 0; p < w.count; ++p) pairs_.push_back((bs_u64)row[positions[p]].position << 32 | (bs_u32)row[positions[p]].column);
      std::sort(pairs_.begin(), pairs_.end());
      for (bs_i64 p = 0; p < w.count; ++p) positions[p] = (bs_i32)(pairs_[p] >> 32), columns[p] = (bs_i32)pairs_[p];
    }
  }

  // Chooses among the positions of a window, ascending, and their columns by a law that weighs each; returns how many.
  bs_i64 by_weight(const Window& w, const bs_i32* positions, const bs_i32* columns) {
    const std::size_t length = (std::size_t)w.count;
    weights_.resize(d_.values ? length : 0);
    for (std::size_t p = 0; p < weights_.size(); ++p) weights_[p] = d_.values[w.begin + positions[p]];
    const bs_i64* weights = d_.values ? weights_.data() : nullptr;
    chosen_.resize((std::size_t)std::max<bs_i64>(d_.fanout, 1));
    bs_i64 count;
    if (d_.law == WEIGHTED) {
      count = laws_.weigh_row(w.row, weights, (bs_u32)length, (bs_u32*)chosen_.data());
    } else {
      picked_.resize(chosen_.size());
      count = laws_.race_columns(w.row, d_.by_place ? positions : columns, weights, (bs_u32)length, picked_.data(), chosen_.data());
    }
    for (bs_i64 p = 0; p < count; ++p) chosen_[p] = positions[chosen_[p]];
    return count;
  }

  const Drawing d_;
  const Times t_;
  RowLaws laws_;
  Window blocks_[2][BLOCK];
  std::vector<bs_i32> positions_, picked_, chosen_;
  std::vector<bs_i64> weights_;
  std::vector<bs_u64> pairs_;
};

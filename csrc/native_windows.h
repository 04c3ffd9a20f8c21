// Rows of A in windows of time: positions [lo, hi) of a row that lies sorted by time, found by binary search. A block of rows passes through
// the steps together, and each step prefetches what the next one reads: the times, the order, the columns.
#pragma once
#include "native_rows.h"
#include "window_row.h"

struct TimedRow : Row {
  bs_i64 start, end;
};

struct Times {  // of the entries of A, in the order of time within a row
  const bs_i64* times;
  const bs_i32* order;  // the position in its row that each came from
  bool starts;          // windows have a beginning
  bool strict;          // leave out what equals the end
  bool last;            // take the last s, not random ones
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
    for (bs_i64 first = 0; first < rows; first += BLOCK) {
      const bs_i64 count = std::min(BLOCK, rows - first), before = columns.size();
      for (bs_i64 r = first + BLOCK; r < std::min(rows, first + 2 * BLOCK); ++r) foretell(&d_.indptr[vertex(r)]);
      for (bs_i64 i = 0; i < count; ++i) begin(i, row(first + i));
      find(count);
      for (bs_i64 i = 0; i < count; ++i) draw(i);
      for (bs_i64 i = 0; i < count; ++i) settle(i);
      for (bs_i64 i = 0; i < count; ++i) land(i, columns, entries, ends);
      sink.settle(before, columns.size());
    }
  }

 private:
  static constexpr bs_i64 BLOCK = 64;  // rows

  struct Window {
    TimedRow row;
    bs_i64 begin, degree;
    BsBisection search;      // its `low` is the end that was found
    bs_i64 low, high;
    BsCandidates taken;
    bs_i64 first, count;  // of its positions in `positions_`
  };

  void begin(bs_i64 i, const TimedRow& row) {
    const bs_i64* p = d_.indptr + row.vertex;
    windows_[i] = Window{row, p[0], p[1] - p[0], {0, p[1] - p[0]}, 0, p[1] - p[0], {}, 0, 0};
  }

  // lo and hi of all rows of the block, step by step together.
  void find(bs_i64 count) {
    bisect(count, !t_.strict, [&](bs_i64 i) { return windows_[i].row.end; });
    for (bs_i64 i = 0; i < count; ++i) windows_[i].high = windows_[i].search.low, windows_[i].search = BsBisection{0, windows_[i].search.low};
    if (!t_.starts) return;
    bisect(count, false, [&](bs_i64 i) { return windows_[i].row.start; });
    for (bs_i64 i = 0; i < count; ++i) windows_[i].low = windows_[i].search.low;
  }

  template <class Wanted>
  void bisect(bs_i64 count, bool after_equal, Wanted wanted) {
    for (bool open = true; open;) {
      open = false;
      for (bs_i64 i = 0; i < count; ++i) {
        Window& w = windows_[i];
        if (!w.search.open()) continue;
        w.search.narrow(t_.times[w.begin + w.search.middle()], wanted(i), after_equal);
        if (w.search.open()) open = true, foretell(&t_.times[w.begin + w.search.middle()]);
      }
    }
  }

  bool chooses(const Window& w) const { return bs_weighs(d_.law) && !w.taken.all; }

  // Positions in the order of time.
  void draw(bs_i64 i) {
    Window& w = windows_[i];
    w.taken = bs_candidates(w.low, w.high, w.degree, d_.law, d_.fanout, d_.values != nullptr, t_.last);
    const bs_u32 length = (bs_u32)w.taken.length;
    w.first = i == 0 ? 0 : windows_[i - 1].first + windows_[i - 1].count;
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
    if (w.taken.in_order) return;
    for (bs_i64 p = 0; p < w.count; ++p) foretell(&t_.order[w.begin + out[p]]);
  }

  // Positions in the row, ascending.
  void settle(bs_i64 i) {
    Window& w = windows_[i];
    bs_i32* out = positions_.data() + w.first;
    if (!w.taken.in_order) {
      for (bs_i64 p = 0; p < w.count; ++p) out[p] = t_.order[w.begin + out[p]];
      if (w.count < 24)
        for (bs_i64 p = 1; p < w.count; ++p) {
          const bs_i32 value = out[p];
          bs_i64 at = p;
          for (; at > 0 && out[at - 1] > value; --at) out[at] = out[at - 1];
          out[at] = value;
        }
      else
        std::sort(out, out + w.count);
    }
    for (bs_i64 p = 0; p < w.count; ++p) foretell(&d_.indices[w.begin + out[p]]);
  }

  void land(bs_i64 i, Buffer<bs_i32>& columns, Buffer<bs_i64>& entries, Buffer<bs_i64>& ends) {
    const Window& w = windows_[i];
    const bs_i32* positions = positions_.data() + w.first;
    const bool choose = chooses(w);
    const bs_i64 count = choose ? by_weight(w, positions) : w.count;
    if (choose) positions = chosen_.data();
    bs_i32* out = columns.room(count);
    bs_i64* entry = entries.room(count);
    for (bs_i64 p = 0; p < count; ++p) {
      entry[p] = w.begin + positions[p];
      out[p] = d_.indices[entry[p]];
    }
    columns.add(count);
    entries.add(count);
    ends.push(columns.size());
  }

  // Chooses among the positions of a window by a law that weighs each; returns how many.
  bs_i64 by_weight(const Window& w, const bs_i32* positions) {
    const std::size_t length = (std::size_t)w.count;
    columns_.resize(length), weights_.resize(d_.values ? length : 0);
    for (std::size_t p = 0; p < length; ++p) {
      columns_[p] = d_.by_place ? positions[p] : d_.indices[w.begin + positions[p]];
      if (d_.values) weights_[p] = d_.values[w.begin + positions[p]];
    }
    const bs_i64* weights = d_.values ? weights_.data() : nullptr;
    chosen_.resize((std::size_t)std::max<bs_i64>(d_.fanout, 1));
    bs_i64 count;
    if (d_.law == WEIGHTED) {
      count = laws_.weigh_row(w.row, weights, (bs_u32)length, (bs_u32*)chosen_.data());
    } else {
      picked_.resize(chosen_.size());
      count = laws_.race_columns(w.row, columns_.data(), weights, (bs_u32)length, picked_.data(), chosen_.data());
    }
    for (bs_i64 p = 0; p < count; ++p) chosen_[p] = positions[chosen_[p]];
    return count;
  }

  const Drawing d_;
  const Times t_;
  RowLaws laws_;
  Window windows_[BLOCK];
  std::vector<bs_i32> positions_, columns_, picked_, chosen_;
  std::vector<bs_i64> weights_;
};

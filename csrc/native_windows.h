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
  WindowFlight(const Drawing& drawing, const Times& times) : d_(drawing), t_(times), lanes_(drawing), laws_(drawing) {}

  // Appends the picks of rows 0 .. rows - 1 to `columns`, their positions in A to `entries` unless null, and the end of each row to `ends`; see
  // RowFlight. `row(r)` returns a TimedRow.
  template <class VertexOf, class RowOf, class Sink>
  void run(bs_i64 rows, VertexOf vertex, RowOf row, Buffer<bs_i32>& columns, Buffer<bs_i64>* entries, Buffer<bs_i64>& ends, Sink& sink) {
    ends.room(rows);
    for (bs_i64 r = 0; r < std::min(rows, BLOCK); ++r) foretell(&d_.indptr[vertex(r)]);
    for (bs_i64 next = 0; next < rows + BLOCK; next += BLOCK) {
      for (bs_i64 r = next + BLOCK; r < std::min(rows, next + 2 * BLOCK); ++r) foretell(&d_.indptr[vertex(r)]);
      for (bs_i64 r = next; r < std::min(rows, next + BLOCK); ++r) begin(blocks_[next / BLOCK % 2][r - next], row(r));
      if (next == 0) continue;
      Window* windows = blocks_[(next / BLOCK - 1) % 2];
      const bs_i64 count = std::min(BLOCK, rows - next + BLOCK), before = columns.size();
      find(windows, count);
      draw(windows, count);
      for (bs_i64 i = 0; i < count; ++i) land(windows[i], columns, entries, ends);
      sink.settle(before, columns.size());
    }
  }

 private:
  static constexpr bs_i64 BLOCK = 64;  // rows; the pointers and entries of a block are on their way while that before it is drawn
  static constexpr bs_i64 FEW = 15;    // entries that are searched in as many steps as FEW has bits; a row of so many is read as a whole
  static constexpr bs_i64 LINE = 4;    // entries of a cache line; as many picks of a row are sorted by a network
  static constexpr bs_i64 SHORT = 256;  // a row of so many is sorted by the bits of a few words

  struct Window {
    TimedRow row;
    bs_i64 begin, degree;
    BsBisection low, high;  // the searches for its ends; `low` of each is the end that was found
    BsCandidates taken;
    bs_i64 first, count;  // of its picks in `positions_`; first is -1 if they are all candidates
  };

  void begin(Window& w, const TimedRow& row) const {
    const bs_i64* p = d_.indptr + row.vertex;
    w.row = row, w.begin = p[0], w.degree = p[1] - p[0];
    w.low = {0, t_.starts ? w.degree : 0}, w.high = {0, w.degree};
    if (t_.starts) ask(w, w.low);
    else ask(w, w.high);
  }

  // Both ends of the windows of a block: longer rows are bisected step by step together, until few entries are left.
  void find(Window* windows, bs_i64 count) const {
    Window* open[BLOCK];
    bs_i64 left = 0;
    for (bs_i64 i = 0; i < count; ++i) open[left] = &windows[i], left += !few(windows[i].high);
    while (left) {
      bs_i64 still = 0;
      for (bs_i64 i = 0; i < left; ++i) {
        Window& w = *open[i];
        narrow(w, w.high, w.row.end, !t_.strict);
        narrow(w, w.low, w.row.start, false);
        open[still] = &w, still += !few(w.high) || !few(w.low);
      }
      left = still;
    }
    for (bs_i64 i = 0; i < count; ++i) {
      Window& w = windows[i];
      const BsTimed* row = t_.entries + w.begin;
      const bs_i64 start = w.row.start, end = w.row.end;
      if (t_.strict) finish(row, w.high, [=](bs_i64 time) { return time < end; });
      else finish(row, w.high, [=](bs_i64 time) { return time <= end; });
      if (t_.starts) finish(row, w.low, [=](bs_i64 time) { return time < start; });
    }
  }

  static bool few(const BsBisection& search) { return search.high - search.low <= FEW; }

  void narrow(const Window& w, BsBisection& search, bs_i64 wanted, bool after_equal) const {
    if (few(search)) return;
    search.narrow(t_.entries[w.begin + search.middle()].time, wanted, after_equal);
    ask(w, search);
  }

  // Counts those of a few entries that lie before the end which is searched. A branch on a time would be mispredicted every other time.
  template <class Before>
  static void finish(const BsTimed* row, BsBisection& search, Before before) {
    const bs_i64 count = search.high - search.low;
    if (count == 0) return;
    row += search.low;
    bs_i64 found = 0;
    for (bs_i64 step = (FEW + 1) / 2; step; step /= 2) {
      const bs_i64 next = found + step;
      found += step & -(bs_i64)((next <= count) & before(row[std::min(next, count) - 1].time));
    }
    search.low += found;
  }

  // Prefetches what a search reads next: an entry in the middle, or the few that are left.
  void ask(const Window& w, const BsBisection& search) const {
    const BsTimed* row = t_.entries + w.begin;
    if (!few(search)) return foretell(row + search.middle());
    for (bs_i64 p = 0; p <= FEW; p += LINE) foretell(row + std::min(search.low + p, search.high));  // no branch: a line that is asked for again costs little
  }

  // Takes or draws positions in the order of time; drawn ones lie row by row in `positions_`.
  void draw(Window* windows, bs_i64 count) {
    Window* drawing[BLOCK];
    bs_i64 rows = 0;
    for (bs_i64 i = 0; i < count; ++i) {
      Window& w = windows[i];
      w.taken = bs_candidates(std::min(w.low.low, w.high.low), w.high.low, w.degree, d_.law, d_.fanout, d_.values != nullptr, t_.last);
      const bool all = w.taken.all || bs_weighs(d_.law);
      w.first = all ? -1 : rows * d_.fanout, w.count = all ? w.taken.length : d_.fanout;
      drawing[rows] = &w, rows += !all;
      if (all && w.degree > FEW)
        for (bs_i64 p = 0; p < w.count; p += LINE) foretell(t_.entries + w.begin + w.taken.low + p);
    }
    if (rows) positions_.resize((std::size_t)std::max((bs_i64)positions_.size(), rows * d_.fanout));
    for (bs_i64 first = 0; first < rows; first += LANES) draw_together(drawing + first, (int)std::min<bs_i64>(rows - first, LANES));
    for (bs_i64 i = 0; i < rows; ++i)
      for (bs_i64 p = 0; p < d_.fanout; ++p) foretell(t_.entries + drawing[i]->begin + positions_[drawing[i]->first + p]);
  }

  void draw_together(Window* const* windows, int count) {
    if (lanes_.fit() && count > 1) {
      BsLanes picks[LaneDraws::MOST];
      lanes_.draw(count, [&](int l) { return LaneDraws::Asked{windows[l]->row, (bs_u32)windows[l]->taken.length}; }, laws_, picks);
      for (int l = 0; l < count; ++l)
        for (bs_i64 t = 0; t < d_.fanout; ++t) positions_[windows[l]->first + t] = (bs_i32)(windows[l]->taken.low + picks[t].v[l]);
    } else {
      for (int l = 0; l < count; ++l) {
        bs_i32* out = positions_.data() + windows[l]->first;
        laws_.draw_row(windows[l]->row, (bs_u32)windows[l]->taken.length, (bs_u32*)out);
        for (bs_i64 t = 0; t < d_.fanout; ++t) out[t] += (bs_i32)windows[l]->taken.low;
      }
    }
  }

  void land(const Window& w, Buffer<bs_i32>& columns, Buffer<bs_i64>* entries, Buffer<bs_i64>& ends) {
    const bool choose = bs_weighs(d_.law) && !w.taken.all;
    bs_i64 count = w.count;
    if (!choose && w.first < 0 && count <= LINE) {
      sort_line(w, columns.room(LINE), entries ? entries->room(LINE) : nullptr);
    } else {
      const bs_i64 most = choose && d_.fanout >= 0 ? d_.fanout : count;
      bs_i32* out = columns.room(std::max(most, count));
      if ((bs_i64)sorted_.size() < count) sorted_.resize((std::size_t)std::max<bs_i64>(count, SHORT));
      const bs_i32* positions = sorted_.data();
      if (w.first < 0)
        sort(w, [&](bs_i64 p) { return w.taken.low + p; }, out);
      else
        sort(w, [drawn = positions_.data() + w.first](bs_i64 p) { return drawn[p]; }, out);
      if (choose) {
        count = by_weight(w, positions, out);
        positions = chosen_.data();
        for (bs_i64 p = 0; p < count; ++p) out[p] = d_.indices[w.begin + positions[p]];
      }
      if (entries) {
        bs_i64* entry = entries->room(count);
        for (bs_i64 p = 0; p < count; ++p) entry[p] = w.begin + positions[p];
      }
    }
    columns.add(count);
    if (entries) entries->add(count);
    ends.push(columns.size());
  }

  // A position in the row and its column as one number.
  static bs_u64 pair_of(const BsTimed& entry) { return (bs_u64)entry.position << 32 | (bs_u32)entry.column; }

  // All candidates of a window of at most LINE in the order of the adjacency, and some numbers behind them: no branch depends on how many
  // they are, or on their order.
  void sort_line(const Window& w, bs_i32* columns, bs_i64* entries) const {
    if (w.count == 0) return;
    const BsTimed* first = t_.entries + w.begin + w.taken.low;
    bs_u64 pairs[LINE];
    for (bs_i64 p = 0; p < LINE; ++p) pairs[p] = pair_of(first[std::min(p, w.count - 1)]) | -(bs_u64)(p >= w.count);
    auto order = [&](int i, int j) {
      const bs_u64 low = std::min(pairs[i], pairs[j]), high = std::max(pairs[i], pairs[j]);
      pairs[i] = low, pairs[j] = high;
    };
    order(0, 1), order(2, 3), order(0, 2), order(1, 3), order(1, 2);
    for (bs_i64 p = 0; p < LINE; ++p) columns[p] = (bs_i32)pairs[p];
    if (!entries) return;
    for (bs_i64 p = 0; p < LINE; ++p) entries[p] = w.begin + (bs_i64)(pairs[p] >> 32);
  }

  // Turns picks in the order of time into positions in the row, ascending, in `sorted_`, and reads their columns. Distinct ones of a short
  // row are sorted by setting a bit for each.
  template <class Pick>
  void sort(const Window& w, Pick pick, bs_i32* columns) {
    const BsTimed* row = t_.entries + w.begin;
    bs_i32* positions = sorted_.data();
    if (w.degree <= SHORT && d_.law != REPLACEMENT) {
      bs_u64 bits[SHORT / 64] = {};
      bs_i32 column[SHORT];
      for (bs_i64 p = 0; p < w.count; ++p) {
        const BsTimed& entry = row[pick(p)];
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
      for (bs_i64 p = 0; p < w.count; ++p) pairs_.push_back(pair_of(row[pick(p)]));
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
    chosen_.resize((std::size_t)std::max<bs_i64>(d_.fanout < 0 ? w.count : d_.fanout, 1));
    bs_i64 count = 0;
    if (d_.fanout < 0) {  // all of positive weight
      for (bs_i32 p = 0; p < (bs_i32)length; ++p)
        if (weights[p] > 0) chosen_[count++] = p;
    } else if (d_.law == WEIGHTED) {
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
  const LaneDraws lanes_;
  RowLaws laws_;
  Window blocks_[2][BLOCK];
  std::vector<bs_i32> positions_, sorted_, picked_, chosen_;
  std::vector<bs_i64> weights_;
  std::vector<bs_u64> pairs_;
};

// Pipelined reads of rows of A. A group of rows passes through four stages: prefetch its row pointers; draw positions and prefetch
// the columns; read the columns and prefetch the entries of the sink; hand the columns to the sink. Each stage works on a later group
// than the next one, so many reads are always in flight.
#pragma once
#include "native_memory.h"
#include "laws.h"
#include "native_race.h"
#include "uniform_lanes.h"
#include "weighted_row.h"

struct Drawing {  // one hop: the matrix, the law and the fixed words of its counters
  const bs_i64* indptr;
  const bs_i32* indices;
  const bs_i64* values;  // or null: ones
  Law law;
  bs_i64 fanout;
  bs_u64 seed;
  bs_u32 tag;
  bool by_place = false;  // keys name positions in the row, not columns: rows with parallel edges

  bool keyed() const { return fanout >= 0 && bs_by_key(law); }
};

struct Row {
  bs_i32 vertex, name;
  bs_u32 minibatch;
};

struct NoSink {  // leaves columns unchanged
  void foretell(bs_i32) const {}
  void settle(bs_i64, bs_i64) const {}
};

// draw_lanes of uniform_lanes.h, compiled for each x86-64 level.
bool draw_lanes(const Drawing& d, const BsLanes& name, const BsLanes& minibatch, const BsLanes& degree, bs_u32 s, const BsNetwork& network,
                BsLanes* picks);

// Draws from one row at a time, by any law.
class RowLaws {
 public:
  static constexpr bs_i64 LARGE = 256;  // from here a bitmap replaces insertion
  explicit RowLaws(const Drawing& drawing) : d_(drawing), race_(std::max<bs_i64>(d_.fanout, 0)) {}

  // Draws s positions of a row, ascending, by UNIFORM or REPLACEMENT.
  void draw_row(const Row& row, bs_u32 degree, bs_u32* picks) {
    const BsStream stream{d_.seed, (bs_u32)row.name, row.minibatch, d_.tag};
    const bs_u32 s = (bs_u32)d_.fanout;
    if (d_.law == REPLACEMENT && s < LARGE) {
      bs_replacement_row(stream, degree, s, picks);
    } else if (d_.law == REPLACEMENT) {
      BsDraws draws(stream);
      for (bs_u32 t = 0; t < s; ++t) picks[t] = draws.below(degree);
      std::sort(picks, picks + s);
    } else if (s < LARGE) {
      bs_floyd_row(stream, degree, s, picks);
    } else {
      if (bitmap_.size() < degree / 64 + 1) bitmap_.resize(degree / 64 + 1, 0);
      bs_floyd_row_large(stream, degree, s, picks, bitmap_.data());
    }
  }

  // Draws by weight: s positions, ascending, in one pass over the row; 0 if no weight is positive.
  bs_i64 weigh_row(const Row& row, const bs_i64* weights, bs_u32 degree, bs_u32* picks) {
    const BsStream stream{d_.seed, (bs_u32)row.name, row.minibatch, d_.tag};
    const bs_u64 total = bs_weight(weights, degree);
    if (total == 0) return 0;
    targets_.resize((std::size_t)d_.fanout);
    for (bs_u32 t = 0; t < targets_.size(); ++t) targets_[t] = bs_target(stream, t, total);
    std::sort(targets_.begin(), targets_.end());
    bs_u64 sum = 0;
    bs_u32 at = 0;
    for (std::size_t t = 0; t < targets_.size(); ++t) picks[t] = at = bs_reach(weights, targets_[t], at, sum);
    return d_.fanout;
  }

  // Draws by key: the columns of the s smallest keys, ascending, and where they stand in the row unless null; returns how many.
  bs_i64 race_row(const Row& row, const bs_i32* columns, const bs_i64* weights, bs_u32 degree, bs_i32* out, bs_i32* places) {
    if (!d_.by_place) return race_columns(row, columns, weights, degree, out, places);
    for (bs_i32 i = (bs_i32)iota_.size(); i < (bs_i32)degree; ++i) iota_.push_back(i);
    const bs_i64 count = race_columns(row, iota_.data(), weights, degree, out, places);
    for (bs_i64 t = 0; t < count; ++t) out[t] = columns[out[t]];
    return count;
  }

  // The same for columns that are the names of the keys.
  bs_i64 race_columns(const Row& row, const bs_i32* columns, const bs_i64* weights, bs_u32 degree, bs_i32* out, bs_i32* places) {
    const BsStream stream{d_.seed, d_.law == RACE ? (bs_u32)row.name : 0u, row.minibatch, d_.tag};
    return race_.row(stream, columns, weights, degree, out, places);
  }

 private:
  const Drawing d_;
  RaceRow race_;
  std::vector<bs_u64> bitmap_, targets_;
  std::vector<bs_i32> iota_;
};

// Draws few positions from each of LANES rows at once, by UNIFORM or REPLACEMENT: those that `RowLaws::draw_row` draws.
class LaneDraws {
 public:
  static constexpr bs_i64 MOST = 64;  // picks of a row; beyond it one row at a time keeps memory busy
  struct Asked {
    const Row& row;
    bs_u32 degree;
  };
  explicit LaneDraws(const Drawing& drawing)
      : d_(drawing), fit_(!bs_weighs(d_.law) && d_.fanout >= 0 && d_.fanout <= MOST), s_(fit_ ? (bs_u32)d_.fanout : 0), network_(s_) {}

  bool fit() const { return fit_; }  // the law and the fanout
  bs_u32 picks() const { return s_; }  // of a row; 0 if it does not fit

  // Draws from `count` rows, at most LANES: pick t of row asked(l) goes to picks[t].v[l].
  template <class AskedOf>
  void draw(int count, AskedOf asked, RowLaws& laws, BsLanes* picks) const {
    BsLanes name, minibatch, degree;
    for (int l = 0; l < LANES; ++l) {
      const Asked one = asked(l < count ? l : 0);
      name.v[l] = (bs_u32)one.row.name;
      minibatch.v[l] = one.row.minibatch;
      degree.v[l] = one.degree;
    }
    if (!draw_lanes(d_, name, minibatch, degree, s_, network_, picks)) redraw(count, asked, laws, picks);
  }

 private:
  template <class AskedOf>
  void redraw(int count, AskedOf asked, RowLaws& laws, BsLanes* picks) const {
    bs_u32 one[MOST];
    for (int l = 0; l < count; ++l) {
      laws.draw_row(asked(l).row, asked(l).degree, one);
      for (bs_u32 t = 0; t < s_; ++t) picks[t].v[l] = one[t];
    }
  }

  const Drawing d_;
  const bool fit_;
  const bs_u32 s_;
  const BsNetwork network_;
};

// Many rows of A through the stages.
class RowFlight {
 public:
  explicit RowFlight(const Drawing& drawing)
      : d_(drawing),
        keyed_(d_.keyed()),
        lanes_(d_),
        s_(lanes_.picks()),
        size_(lanes_.fit() ? group_size(s_) : LANES),
        laws_(d_) {
    for (Group& group : groups_) group.picks.resize((std::size_t)(size_ / LANES) * s_);
  }

  // Also appends the position of each pick in A.
  void tell_entries(Buffer<bs_i64>* entries) { entries_ = entries; }

  // Appends the picks of rows 0 .. rows - 1 to `columns`, and the end of each row in it to `ends`.
  // `vertex(r)` is the vertex of a row; `row(r)`, called in order, returns all that its counters name;
  // `sink.foretell(column)` announces a column, `sink.settle(first, last)` hands over entries of `columns`.
  template <class VertexOf, class RowOf, class Sink>
  void run(bs_i64 rows, VertexOf vertex, RowOf row, Buffer<bs_i32>& columns, Buffer<bs_i64>& ends, Sink& sink) {
    const bs_i64 groups = (rows + size_ - 1) / size_;
    ends.room(rows);
    for (bs_i64 r = 0; r < std::min(rows, 2 * size_); ++r) ask(vertex(r));
    for (bs_i64 g = 0; g < groups + 2; ++g) {
      for (bs_i64 r = (g + 2) * size_; r < std::min(rows, (g + 3) * size_); ++r) ask(vertex(r));
      if (g < groups) start(groups_[g % 3], g * size_, std::min(rows, (g + 1) * size_), row);
      if (g >= 1 && g <= groups) land(groups_[(g - 1) % 3], columns, ends, sink);
      if (g >= 2) sink.settle(groups_[(g - 2) % 3].first, groups_[(g - 2) % 3].last);
    }
  }

 private:
  static constexpr bs_i64 GROUP_MOST = 64;  // rows
  static constexpr bs_i64 GROUP_EDGES = 384;
  static bs_i64 group_size(bs_u32 s) { return std::min(GROUP_MOST, std::max<bs_i64>(1, GROUP_EDGES / (LANES * (s + 1))) * LANES); }

  struct Group {
    bs_i64 rows = 0, first = 0, last = 0;  // entries of `columns`, once read
    Row row[GROUP_MOST];
    const bs_i32* at[GROUP_MOST];  // the row of A
    bs_u32 degree[GROUP_MOST];
    bs_i32 lane[GROUP_MOST];  // the lane of its picks; -1: the row is not drawn in lanes
    std::vector<BsLanes> picks;
  };

  BS_INLINE bool takes_all(bs_u32 degree) const { return bs_takes_all(d_.law, d_.fanout, d_.values != nullptr, degree); }

  BS_INLINE void ask(bs_i32 vertex) const {  // both ends: every eighth row has them in two cache lines
    foretell(&d_.indptr[vertex]);
    foretell(&d_.indptr[vertex + 1]);
  }

  template <class RowOf>
  void start(Group& group, bs_i64 first, bs_i64 last, RowOf& row) {
    group.rows = last - first;
    bs_i32 drawn = 0;
    bs_i32 rows[GROUP_MOST];
    for (bs_i64 i = 0; i < group.rows; ++i) {
      group.row[i] = row(first + i);
      const bs_i64 *p = d_.indptr + group.row[i].vertex, begin = p[0];
      group.at[i] = d_.indices + begin;
      group.degree[i] = (bs_u32)(p[1] - begin);
      const bool in_lanes = lanes_.fit() && !takes_all(group.degree[i]);
      group.lane[i] = in_lanes ? drawn : -1;
      rows[drawn] = (bs_i32)i;
      drawn += in_lanes;
      if (!in_lanes)
        for (bs_u32 j = 0; j < std::min(group.degree[i], 256u); j += 16) foretell(group.at[i] + j);
    }
    for (bs_i32 b = 0; b < drawn; b += LANES) draw(group, rows + b, std::min(LANES, drawn - b), group.picks.data() + b / LANES * s_);
  }

  void draw(Group& group, const bs_i32* rows, int count, BsLanes* picks) {
    lanes_.draw(count, [&](int l) { return LaneDraws::Asked{group.row[rows[l]], group.degree[rows[l]]}; }, laws_, picks);
    for (int l = 0; l < count; ++l)
      for (bs_u32 t = 0; t < s_; ++t) foretell(group.at[rows[l]] + picks[t].v[l]);
  }

  template <class Sink>
  void land(Group& group, Buffer<bs_i32>& columns, Buffer<bs_i64>& ends, Sink& sink) {
    group.first = columns.size();
    for (bs_i64 i = 0; i < group.rows; ++i) {
      const bs_i32* at = group.at[i];
      const bs_u32 degree = group.degree[i];
      const bs_i64 most = d_.fanout < 0 || takes_all(degree) ? degree : d_.fanout, begin = at - d_.indices;
      bs_i32* out = columns.room(most);
      bs_i64 *entry = entries_ ? entries_->room(most) : nullptr, count = 0;
      if (group.lane[i] >= 0) {
        const BsLanes* picks = group.picks.data() + group.lane[i] / LANES * s_;
        for (bs_u32 t = 0; t < s_; ++t) sink.foretell(out[t] = at[picks[t].v[group.lane[i] % LANES]]);
        count = s_;
        if (entry)
          for (bs_u32 t = 0; t < s_; ++t) entry[t] = begin + picks[t].v[group.lane[i] % LANES];
      } else if (takes_all(degree)) {
        for (bs_u32 t = 0; t < degree; ++t) sink.foretell(out[t] = at[t]);
        count = degree;
        if (entry)
          for (bs_u32 t = 0; t < degree; ++t) entry[t] = begin + t;
      } else if (d_.fanout < 0) {  // all of positive weight
        for (bs_u32 t = 0; t < degree; ++t) {
          if (d_.values[begin + t] <= 0) continue;
          if (entry) entry[count] = begin + t;
          sink.foretell(out[count++] = at[t]);
        }
      } else {
        if (keyed_) {
          if (entry) places_.resize((std::size_t)d_.fanout);
          count = laws_.race_row(group.row[i], at, d_.values ? d_.values + begin : nullptr, degree, out, entry ? places_.data() : nullptr);
          if (entry)
            for (bs_i64 t = 0; t < count; ++t) entry[t] = begin + places_[t];
        } else {
          count = d_.law == WEIGHTED ? laws_.weigh_row(group.row[i], d_.values ? d_.values + begin : nullptr, degree, (bs_u32*)out) : d_.fanout;
          if (d_.law != WEIGHTED) laws_.draw_row(group.row[i], degree, (bs_u32*)out);
          if (entry)
            for (bs_i64 t = 0; t < count; ++t) entry[t] = begin + (bs_u32)out[t];
          for (bs_i64 t = 0; t < count; ++t) out[t] = at[(bs_u32)out[t]];
        }
        for (bs_i64 t = 0; t < count; ++t) sink.foretell(out[t]);
      }
      columns.add(count);
      if (entry) entries_->add(count);
      ends.push(columns.size());
    }
    group.last = columns.size();
  }

  const Drawing d_;
  Buffer<bs_i64>* entries_ = nullptr;
  const bool keyed_;
  const LaneDraws lanes_;
  const bs_u32 s_;
  const bs_i64 size_;  // rows of a group
  RowLaws laws_;
  std::vector<bs_i32> places_;
  Group groups_[3];
};

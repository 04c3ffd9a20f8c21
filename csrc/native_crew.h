// A crew of threads takes one minibatch through a hop. A free thread draws the next block of rows. The first thread also numbers the
// drawn vertices in the order of the rows while the others draw. So numbers are those of a single thread, and their table stays in one
// cache.
#pragma once
#include <deque>

#include "native_numbers.h"
#include "native_rows.h"

template <class Numbers>
class CrewHop {
 public:
  static constexpr bs_i64 BLOCK = 256;      // rows
  static constexpr bs_i64 PAYS = 2 * BLOCK;  // from so many rows on

  // `entries`: the position of each pick in A, or null.
  CrewHop(const Drawing& drawing, bs_u32 minibatch, const bs_i32* frontier, bs_i64 rows, Numbers& numbers, Buffer<bs_i32>& columns,
          Buffer<bs_i64>& ends, Buffer<bs_i64>* entries, Buffer<bs_i32>& vertices)
      : drawing_(drawing),
        minibatch_(minibatch),
        frontier_(frontier, frontier + rows),  // a copy, since `vertices` grows and moves meanwhile
        drawn_((std::size_t)((rows + BLOCK - 1) / BLOCK + 1)),
        numbers_(numbers),
        columns_(columns),
        ends_(ends),
        entries_(entries),
        vertices_(vertices) {}

  // Appends the numbers of the drawn vertices to `columns`, the ends of the rows to `ends`, new vertices to `vertices`.
  // The crew lives for this hop alone: OpenMP's threads would spin after it and take processors from others.
  void run(int threads) {
    std::vector<std::exception_ptr> failures(std::max(threads, 1));
    auto work = [&](int thread) {
      try {
        while (draw_next())
          if (thread == 0) number_what_is_drawn();
      } catch (...) {
        failures[thread] = std::current_exception();
      }
    };
    on_threads(threads, work);
    for (std::exception_ptr& failure : failures)
      if (failure) std::rethrow_exception(failure);
    number_what_is_drawn();
  }

 private:
  struct Drawn {
    Buffer<bs_i32> columns;
    Buffer<bs_i64> ends, entries;
    std::atomic<bool> ready{false};
  };

  // Draws one block that no thread has taken; false if none is left.
  bool draw_next() {
    const bs_i64 block = taken_++, first = block * BLOCK, rows = std::min((bs_i64)frontier_.size() - first, BLOCK);
    if (rows > 0) draw(drawn_[block], frontier_.data() + first, rows);
    return rows > 0;
  }

  void draw(Drawn& block, const bs_i32* frontier, bs_i64 rows) const {
    RowFlight flight(drawing_);
    if (entries_) flight.tell_entries(&block.entries);
    NoSink sink;
    auto vertex = [&](bs_i64 r) { return frontier[r]; };
    auto row = [&](bs_i64 r) { return Row{frontier[r], frontier[r], minibatch_}; };
    flight.run(rows, vertex, row, block.columns, block.ends, sink);
    block.ready = true;
  }

  void number_what_is_drawn() {
    for (; drawn_[next_].ready; ++next_) number(drawn_[next_]);
  }

  void number(Drawn& block) {
    constexpr bs_i64 AHEAD = 128;
    bs_i32* found = block.columns.data();
    const bs_i64 count = block.columns.size(), before = columns_.size();
    for (bs_i64 i = 0; i < std::min(count, AHEAD); ++i) numbers_.foretell(found[i]);
    for (bs_i64 first = 0; first < count; first += AHEAD) {
      for (bs_i64 i = first + AHEAD; i < std::min(count, first + 2 * AHEAD); ++i) numbers_.foretell(found[i]);
      renumber(numbers_, found + first, std::min(AHEAD, count - first), vertices_);
    }
    std::copy_n(found, count, columns_.room(count));
    columns_.add(count);
    if (entries_) {
      std::copy_n(block.entries.data(), count, entries_->room(count));
      entries_->add(count);
      block.entries = Buffer<bs_i64>();
    }
    for (bs_i64 r = 0; r < block.ends.size(); ++r) ends_.push(before + block.ends[r]);
    block.columns = Buffer<bs_i32>();
    block.ends = Buffer<bs_i64>();
  }

  const Drawing drawing_;
  const bs_u32 minibatch_;
  const std::vector<bs_i32> frontier_;
  std::deque<Drawn> drawn_;  // and one that is never ready
  std::atomic<bs_i64> taken_{0};  // blocks
  bs_i64 next_ = 0;               // to be numbered
  Numbers& numbers_;
  Buffer<bs_i32>& columns_;
  Buffer<bs_i64>& ends_;
  Buffer<bs_i64>* entries_;
  Buffer<bs_i32>& vertices_;
};

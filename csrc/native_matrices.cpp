// Products and extractions: SpGEMM in a count pass and a fill pass, rows, restrictions, and the relabelling of
// vertices. Each table belongs to one row or one minibatch, never to all n vertices.
#include "native_numbers.h"

namespace {

struct Matrix {
  const bs_i64* indptr;
  const bs_i32* indices;
  const bs_i64* values;  // or null: ones
  bs_i64 value(bs_i64 at) const { return values ? values[at] : 1; }
  bs_i64 degree(bs_i64 row) const { return indptr[row + 1] - indptr[row]; }
};

Matrix view(const In<bs_i64>& indptr, const In<bs_i32>& indices, const std::optional<In<bs_i64>>& values) {
  return {indptr.data(), indices.data(), values ? values->data() : nullptr};
}

// One row of A B, accumulated in a hash table over its columns.
class ProductRow {
 public:
  ProductRow(const Matrix& a, const Matrix& b, bs_i64 columns) : a_(a), b_(b), columns_(columns) {}

  bs_i64 count(bs_i64 row) {
    if (a_.degree(row) == 1) return b_.degree(a_.indices[a_.indptr[row]]);
    bs_u32 found = 0;
    clear(row);
    for_products(row, [&](bs_i64, bs_i64 at) { found += bs_find_or_insert(table_.data(), bits_, (bs_u32)b_.indices[at], found) == found; });
    return found;
  }

  // Writes the row in ascending columns; returns how many sums came out zero (they are dropped).
  bs_i64 fill(bs_i64 row, bs_i32* columns, bs_i64* values) {
    sums_.clear();
    clear(row);
    for_products(row, [&](bs_i64 factor, bs_i64 at) {
      const bs_u32 number = bs_find_or_insert(table_.data(), bits_, (bs_u32)b_.indices[at], (bs_u32)sums_.size());
      if (number == sums_.size()) sums_.push_back({b_.indices[at], 0});
      sums_[number].second += factor * b_.value(at);
    });
    std::sort(sums_.begin(), sums_.end());
    bs_i64 kept = 0;
    for (const auto& [column, sum] : sums_)
      if (sum != 0) {
        columns[kept] = column;
        values[kept++] = sum;
      }
    return (bs_i64)sums_.size() - kept;
  }

 private:
  template <class Visit>
  void for_products(bs_i64 row, Visit visit) {
    for (bs_i64 i = a_.indptr[row]; i < a_.indptr[row + 1]; ++i) {
      const bs_i64 j = a_.indices[i];
      for (bs_i64 at = b_.indptr[j]; at < b_.indptr[j + 1]; ++at) visit(a_.value(i), at);
    }
  }
  void clear(bs_i64 row) {
    bs_i64 products = 0;
    for (bs_i64 i = a_.indptr[row]; i < a_.indptr[row + 1]; ++i) products += b_.degree(a_.indices[i]);
    bits_ = bits_for(std::min(products, columns_));
    table_.assign(1ull << bits_, BsSlot{bs_free, 0});
  }
  const Matrix &a_, &b_;
  bs_i64 columns_;
  int bits_ = 0;
  std::vector<BsSlot> table_;
  std::vector<std::pair<bs_i32, bs_i64>> sums_;
};

py::tuple spgemm(In<bs_i64> a_indptr, In<bs_i32> a_indices, std::optional<In<bs_i64>> a_values, In<bs_i64> b_indptr, In<bs_i32> b_indices,
                 std::optional<In<bs_i64>> b_values, bs_i64 columns, int threads) {
  const Matrix a = view(a_indptr, a_indices, a_values), b = view(b_indptr, b_indices, b_values);
  const bs_i64 m = a_indptr.size() - 1;
  const bs_i64 grain = std::max<bs_i64>(1, std::min<bs_i64>(256, m / (8 * std::max(threads, 1))));
  py::array_t<bs_i64> out_pointers(m + 1);
  bs_i64* ends = out_pointers.mutable_data();
  std::vector<bs_i64> zeros(m, 0);
  {
    py::gil_scoped_release nogil;
    ends[0] = 0;
    for_blocks(m, grain, threads, [&](bs_i64 first, bs_i64 last) {
      ProductRow row(a, b, columns);
      for (bs_i64 i = first; i < last; ++i) ends[i + 1] = row.count(i);
    });
    counts_to_pointers(ends, m);
  }
  py::array_t<bs_i32> out_columns(ends[m]);
  py::array_t<bs_i64> out_values(ends[m]);
  bs_i32* c = out_columns.mutable_data();
  bs_i64* v = out_values.mutable_data();
  py::gil_scoped_release nogil;
  for_blocks(m, grain, threads, [&](bs_i64 first, bs_i64 last) {
    ProductRow row(a, b, columns);
    for (bs_i64 i = first; i < last; ++i) zeros[i] = row.fill(i, c + ends[i], v + ends[i]);
  });
  bs_i64 kept = 0;  // close the gaps that sums of zero left
  for (bs_i64 i = 0, start = 0; i < m; ++i) {
    const bs_i64 stop = ends[i + 1], size = stop - start - zeros[i];
    if (kept != start) {
      std::copy(c + start, c + start + size, c + kept);
      std::copy(v + start, v + start + size, v + kept);
    }
    kept += size;
    start = stop;
    ends[i + 1] = kept;
  }
  py::gil_scoped_acquire gil;
  if (kept < out_columns.size()) {
    out_columns.resize({kept});
    out_values.resize({kept});
  }
  return py::make_tuple(out_pointers, out_columns, out_values);
}

py::tuple extract_rows(In<bs_i64> indptr, In<bs_i32> indices, std::optional<In<bs_i64>> values, In<bs_i32> rows, int threads) {
  const Matrix a = view(indptr, indices, values);
  const bs_i64 m = rows.size();
  const bs_i32* row = rows.data();
  py::array_t<bs_i64> out_pointers(m + 1);
  bs_i64* ends = out_pointers.mutable_data();
  ends[0] = 0;
  for (bs_i64 i = 0; i < m; ++i) ends[i + 1] = ends[i] + a.degree(row[i]);
  py::array_t<bs_i32> out_columns(ends[m]);
  py::object out_values = py::none();
  bs_i64* v = nullptr;
  if (values) {
    py::array_t<bs_i64> array(ends[m]);
    v = array.mutable_data();
    out_values = array;
  }
  bs_i32* c = out_columns.mutable_data();
  {
    py::gil_scoped_release nogil;
    for_blocks(m, 256, threads, [&](bs_i64 b, bs_i64 e) {
      for (bs_i64 i = b; i < e; ++i) {
        const bs_i64 start = a.indptr[row[i]], stop = a.indptr[row[i] + 1];
        std::copy(a.indices + start, a.indices + stop, c + ends[i]);
        if (v) std::copy(a.values + start, a.values + stop, v + ends[i]);
      }
    });
  }
  return py::make_tuple(out_pointers, out_columns, out_values);
}

// The columns one minibatch selected: a hash table for long scans, a sorted list for short look-ups in long rows.
class Columns {
 public:
  Columns(const bs_i32* vertices, bs_i64 count) : bits_(bits_for(count)), table_(1ull << bits_, BsSlot{bs_free, 0}), sorted_(count) {
    for (bs_i64 i = 0; i < count; ++i) {
      bs_find_or_insert(table_.data(), bits_, (bs_u32)vertices[i], (bs_u32)i);
      sorted_[i] = {vertices[i], (bs_i32)i};
    }
    std::sort(sorted_.begin(), sorted_.end());
  }
  template <class Visit>
  void meet(const bs_i32* begin, const bs_i32* end, Visit visit) const {
    const bs_i64 degree = end - begin, count = (bs_i64)sorted_.size();
    if (count * 16 < degree) {
      const bs_i32* from = begin;
      for (const auto& [vertex, number] : sorted_) {
        from = std::lower_bound(from, end, vertex);
        if (from != end && *from == vertex) visit(number, from - begin);
      }
    } else {
      for (const bs_i32* at = begin; at != end; ++at) {
        const bs_u32 number = bs_find(table_.data(), bits_, (bs_u32)*at);
        if (number != bs_free) visit((bs_i32)number, at - begin);
      }
    }
  }

 private:
  int bits_;
  std::vector<BsSlot> table_;
  std::vector<std::pair<bs_i32, bs_i32>> sorted_;
};

py::tuple restrict_rows(In<bs_i64> indptr, In<bs_i32> indices, In<bs_i64> row_pointers, In<bs_i32> row_vertices, In<bs_i64> column_pointers,
                        In<bs_i32> column_vertices, int threads) {
  const bs_i64 k = row_pointers.size() - 1, rows = row_vertices.size();
  const bs_i64 *a = indptr.data(), *rp = row_pointers.data(), *cp = column_pointers.data();
  const bs_i32 *neighbours = indices.data(), *rv = row_vertices.data(), *cv = column_vertices.data();
  struct Found {
    std::vector<bs_i32> columns;
    std::vector<bs_i64> entries;
  };
  std::vector<Found> found(k);
  py::array_t<bs_i64> out_pointers(rows + 1);
  bs_i64* ends = out_pointers.mutable_data();
  {
    py::gil_scoped_release nogil;
    ends[0] = 0;
    for_blocks(k, 1, threads, [&](bs_i64 j, bs_i64) {
      const Columns columns(cv + cp[j], cp[j + 1] - cp[j]);
      for (bs_i64 r = rp[j]; r < rp[j + 1]; ++r) {
        const bs_i64 start = a[rv[r]], before = (bs_i64)found[j].columns.size();
        columns.meet(neighbours + start, neighbours + a[rv[r] + 1], [&](bs_i32 number, bs_i64 place) {
          found[j].columns.push_back(number);
          found[j].entries.push_back(start + place);
        });
        ends[r + 1] = (bs_i64)found[j].columns.size() - before;
      }
    });
    counts_to_pointers(ends, rows);
  }
  py::array_t<bs_i32> out_columns(ends[rows]);
  py::array_t<bs_i64> out_entries(ends[rows]);
  bs_i32* c = out_columns.mutable_data();
  bs_i64* entry = out_entries.mutable_data();
  for (bs_i64 j = 0; j < k; ++j) {
    std::copy(found[j].columns.begin(), found[j].columns.end(), c + ends[rp[j]]);
    std::copy(found[j].entries.begin(), found[j].entries.end(), entry + ends[rp[j]]);
  }
  return py::make_tuple(out_pointers, out_columns, out_entries);
}

py::array_t<bs_i64> locate(In<bs_i64> indptr, In<bs_i32> indices, In<bs_i32> rows, In<bs_i64> pointers, In<bs_i32> columns, int threads) {
  const bs_i64 *a = indptr.data(), *p = pointers.data();
  const bs_i32 *neighbours = indices.data(), *row = rows.data(), *wanted = columns.data();
  py::array_t<bs_i64> entries(columns.size());
  bs_i64* out = entries.mutable_data();
  {
    py::gil_scoped_release nogil;
    for_blocks(rows.size(), 512, threads, [&](bs_i64 first, bs_i64 last) {
      for (bs_i64 r = first; r < last; ++r) {
        const bs_i32 *from = neighbours + a[row[r]], *end = neighbours + a[row[r] + 1];
        for (bs_i64 e = p[r]; e < p[r + 1]; ++e) {
          from = std::lower_bound(from, end, wanted[e]);  // columns ascend, so earlier entries are no longer needed
          out[e] = from - neighbours;
        }
      }
    });
  }
  return entries;
}

py::tuple relabel(In<bs_i64> known_pointers, In<bs_i32> known_vertices, In<bs_i64> pointers, In<bs_i32> columns, int threads) {
  constexpr bs_i64 GROUP = 256;  // columns whose slots are asked for at once
  const bs_i64 k = pointers.size() - 1;
  const bs_i64 *kp = known_pointers.data(), *fp = pointers.data();
  const bs_i32 *kv = known_vertices.data(), *found = columns.data();
  py::array_t<bs_i32> local(columns.size());
  py::array_t<bs_i64> out_pointers(k + 1);
  bs_i32* numbers = local.mutable_data();
  bs_i64* ends = out_pointers.mutable_data();
  std::vector<Buffer<bs_i32>> held(k);
  {
    py::gil_scoped_release nogil;
    ends[0] = 0;
    for_blocks(k, 1, threads, [&](bs_i64 j, bs_i64) {
      const bs_i64 known = kp[j + 1] - kp[j], edges = fp[j + 1] - fp[j];
      HashNumbers numbering(0, known + edges / 4);
      auto number_all = [&](const bs_i32* vertices, bs_i64 count, bs_i32* out) {
        for (bs_i64 i = 0; i < count + GROUP; i += GROUP) {
          for (bs_i64 at = i; at < std::min(count, i + GROUP); ++at) numbering.foretell(out[at] = vertices[at]);
          if (i > 0) renumber(numbering, out + i - GROUP, std::min(count, i) - (i - GROUP), held[j]);
        }
      };
      Buffer<bs_i32> themselves;
      number_all(kv + kp[j], known, themselves.room(known));
      number_all(found + fp[j], edges, numbers + fp[j]);
      ends[j + 1] = held[j].size();
    });
    counts_to_pointers(ends, k);
  }
  py::array_t<bs_i32> vertices(ends[k]);
  bs_i32* v = vertices.mutable_data();
  for (bs_i64 j = 0; j < k; ++j) std::copy_n(held[j].data(), held[j].size(), v + ends[j]);
  return py::make_tuple(out_pointers, vertices, local);
}

}  // namespace

void bind_matrices(py::module_& m) {
  m.def("spgemm", &spgemm, py::arg("a_indptr").noconvert(), py::arg("a_indices").noconvert(), py::arg("a_values").noconvert(),
        py::arg("b_indptr").noconvert(), py::arg("b_indices").noconvert(), py::arg("b_values").noconvert(), py::arg("columns"),
        py::arg("threads"));
  m.def("extract_rows", &extract_rows, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("values").noconvert(),
        py::arg("rows").noconvert(), py::arg("threads"));
  m.def("restrict", &restrict_rows, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("row_pointers").noconvert(),
        py::arg("row_vertices").noconvert(), py::arg("column_pointers").noconvert(), py::arg("column_vertices").noconvert(),
        py::arg("threads"));
  m.def("locate", &locate, py::arg("indptr").noconvert(), py::arg("indices").noconvert(), py::arg("rows").noconvert(),
        py::arg("pointers").noconvert(), py::arg("columns").noconvert(), py::arg("threads"));
  m.def("relabel", &relabel, py::arg("known_pointers").noconvert(), py::arg("known_vertices").noconvert(), py::arg("pointers").noconvert(),
        py::arg("columns").noconvert(), py::arg("threads"));
}

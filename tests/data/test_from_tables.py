"""Graphs from tables with keys, against joins written out; and every way in which tables are wrong, refused by table, column and row."""

# ruff: noqa: E501 (a case is a line)

import json
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bulksample as bs
from bulksample import DataError, UsageError
from bulksample.data.tables.from_tables import read_folder
from bulksample.data.tables.table_columns import columns_of

CUSTOMERS = {"id": [30, 10, 20], "age": [20.0, np.nan, 40.0], "vip": [True, False, True], "country": np.array(["de", "fr", "de"])}
ORDERS = {
    "order": np.array([7, 5, 6, 4]),
    "customer": np.array([10.0, np.nan, 30, 10]),  # what pandas makes of integers with a gap
    "seller": np.array(["ann", "bob", None, "ann"], object),
    "when": np.array(["2020-01-02", "1969-12-31", "2020-01-01", "2021-06-01"], "datetime64[D]"),
    "paid": np.array([1, 2, 3, 4], np.int16),
}
SELLERS = {"name": np.array(["bob", "ann"]), "since": np.array(["2019-01-01", "NaT"], "datetime64[s]")}
TABLES = {"customers": CUSTOMERS, "orders": ORDERS, "sellers": SELLERS}
SCHEMA = {
    "customers": {"primary_key": "id"},
    "orders": {"primary_key": "order", "foreign_keys": {"customer": "customers", "seller": "sellers"}, "time": "when"},
    "sellers": {"primary_key": "name"},
}


def build(tables=TABLES, schema=SCHEMA, **options):
    with warnings.catch_warnings(action="ignore"):
        return bs.from_tables(tables, schema, **options)


def edges(relation):
    """The edges of a relation as (source, destination), in the order of the list they came from."""
    matrix = relation.adjacency
    ids = np.arange(matrix.nnz) if relation.edge_ids is None else relation.edge_ids
    pairs = dict(zip(ids.tolist(), zip(matrix.indices.tolist(), matrix.row_of_entry().tolist(), strict=True), strict=True))
    return [pairs[i] for i in range(matrix.nnz)]


def test_rows_are_vertices_and_keys_are_edges():
    graph = build(name="shop")
    assert [(kind.name, kind.count) for kind in graph.types] == [("customers", 3), ("orders", 4), ("sellers", 2)]
    assert [relation.key for relation in graph.relations] == [
        ("orders", "f2p_customer", "customers"),
        ("customers", "rev_f2p_customer", "orders"),
        ("orders", "f2p_seller", "sellers"),
        ("sellers", "rev_f2p_seller", "orders"),
    ]
    assert edges(graph.relation("f2p_customer")) == [(0, 1), (2, 0), (3, 1)]
    assert edges(graph.relation("rev_f2p_customer")) == [(1, 0), (0, 2), (1, 3)]
    assert edges(graph.relation("f2p_seller")) == [(0, 1), (1, 0), (3, 1)]
    np.testing.assert_array_equal(graph.type("orders").times, [1577923200, -86400, 1577836800, 1622505600])
    assert graph.type("customers").times is None
    assert graph.name == "shop"
    assert len(build(reverse=False).relations) == 2


def test_columns_become_features_by_the_documented_encoding():
    graph = build(schema={**SCHEMA, "customers": {"primary_key": "id", "columns": {"country": "category"}}})
    deviation = np.std([20, 40])
    np.testing.assert_allclose(graph.type("customers").features, [[-10 / deviation, 1, 0], [0, 0, 1], [10 / deviation, 1, 0]])
    np.testing.assert_array_equal(graph.type("customers").extra["country"], [0, 1, 0])
    paid = np.array([1, 2, 3, 4])
    np.testing.assert_allclose(graph.type("orders").features[:, 0], (paid - paid.mean()) / paid.std(), rtol=1e-6)
    np.testing.assert_allclose(graph.type("sellers").features, [[0, 0], [0, 1]])  # one date that is known: its mean, no deviation
    assert graph.type("sellers").features.dtype == np.float32


def test_columns_may_be_kept_dropped_or_categories():
    columns = {"age": "keep", "vip": "drop", "country": "keep"}
    graph = build(schema={**SCHEMA, "customers": {"primary_key": "id", "columns": columns}})
    customers = graph.type("customers")
    assert customers.features is None
    np.testing.assert_array_equal(customers.extra["age"], CUSTOMERS["age"])
    assert customers.extra["country"].tolist() == ["de", "fr", "de"]
    codes = build(schema={**SCHEMA, "customers": {"primary_key": "id", "columns": {"age": "category", "vip": "category"}}})
    np.testing.assert_array_equal(codes.type("customers").extra["age"], [0, -1, 1])
    np.testing.assert_array_equal(codes.type("customers").extra["vip"], [1, 0, 1])


def test_text_that_no_schema_names_is_left_out_with_a_warning():
    with pytest.warns(UserWarning, match=r"^customers\.country: text is left out; name it in the schema"):
        bs.from_tables(TABLES, SCHEMA)
    with warnings.catch_warnings(action="error"):
        bs.from_tables(TABLES, {**SCHEMA, "customers": {"primary_key": "id", "columns": {"country": "drop"}}})


def test_rows_after_a_time_are_left_out_with_their_edges():
    graph = build(until="2020-01-01")
    assert graph.type("orders").count == 2  # the second and the third
    np.testing.assert_array_equal(graph.type("orders").times, [-86400, 1577836800])
    assert edges(graph.relation("f2p_customer")) == [(1, 0)]
    assert edges(graph.relation("rev_f2p_seller")) == [(0, 0)]
    scaled = (np.array([2, 3]) - 2.5) / 0.5
    np.testing.assert_allclose(graph.type("orders").features[:, 0], scaled)
    for until in (np.datetime64("2020-01-01"), 1577836800):
        np.testing.assert_array_equal(build(until=until).type("orders").times, graph.type("orders").times)


def test_keys_of_rows_that_are_left_out_make_no_edge():
    schema = {"events": {"primary_key": "id", "time": "t", "columns": {"id": "drop"}}, "notes": {"foreign_keys": {"event": "events"}}}
    graph = build({"events": {"id": [1, 2, 3], "t": [10, 30, 20]}, "notes": {"event": [2, 3, 1, 3]}}, schema, until=20)
    assert graph.type("events").count == 2
    assert edges(graph.relation("f2p_event")) == [(1, 1), (2, 0), (3, 1)]


def test_features_are_scaled_by_the_rows_that_may_be_seen():
    graph = build(fit_until="2020-01-01")
    np.testing.assert_allclose(graph.type("orders").features[:, 0], (np.array([1, 2, 3, 4]) - 2.5) / 0.5)


def test_a_column_that_is_constant_until_later_is_not_blown_up():
    table = {"day": np.arange(4), "price": [0.1, 0.1, 0.1, 0.2]}  # the mean of the first three is rounded: it is not 0.1
    graph = bs.from_tables({"sales": table}, {"sales": {"time": "day"}}, fit_until=2)
    np.testing.assert_allclose(graph.types[0].features[:, 0], [0, 0, 0, 0.1])


@pytest.mark.parametrize("unit", ["D", "h", "ms", "ns"])
def test_times_count_in_the_unit_asked_for(unit):
    np.testing.assert_array_equal(build(time_unit=unit).type("orders").times, ORDERS["when"].astype(f"datetime64[{unit}]").astype(int))


def test_labels_and_splits_of_columns():
    table = {"y": [1, 0, None, 2], "part": ["train", "val", None, "test"]}
    kind = build({"t": table}, {"t": {"label": "y", "split": "part"}}).type("t")
    np.testing.assert_array_equal(kind.labels, [1, 0, -1, 2])
    assert (kind.num_classes, kind.features) == (3, None)
    assert {split: np.flatnonzero(mask).tolist() for split, mask in kind.masks.items()} == {"train": [0], "val": [1], "test": [3]}
    table = {"y": ["dog", None, "cat"]}
    kind = build({"t": table}, {"t": {"label": "y"}}).type("t")
    np.testing.assert_array_equal(kind.labels, [1, -1, 0])
    kind = build({"t": {"y": [1.5, np.nan, 2.0]}}, {"t": {"label": "y", "target": "regression"}}).type("t")
    np.testing.assert_array_equal(kind.labels, np.array([[1.5], [np.nan], [2.0]], np.float32))


keys = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8, unique=True)


@settings(max_examples=40)
@given(primary=keys, data=st.data(), as_text=st.booleans())
def test_any_keys_join_as_a_loop_does(primary, data, as_text):
    foreign = data.draw(st.lists(st.one_of(st.none(), st.sampled_from(primary)), max_size=12))
    name = (lambda key: None if key is None else str(key)) if as_text else (lambda key: key)
    column = np.array([*map(name, foreign), None], object)[:-1]
    graph = build(
        {"a": {"k": [name(key) for key in primary]}, "b": {"f": column}}, {"a": {"primary_key": "k"}, "b": {"foreign_keys": {"f": "a"}}}
    )
    expected = [(row, primary.index(key)) for row, key in enumerate(foreign) if key is not None]
    assert edges(graph.relation("f2p_f")) == expected
    assert edges(graph.relation("rev_f2p_f")) == [(one, row) for row, one in expected]


def test_a_table_may_name_itself_and_another_twice():
    tables = {"person": {"id": [1, 2, 3], "boss": [3, 3, None]}, "game": {"home": [1, 2], "away": [2, 2]}}
    schema = {
        "person": {"primary_key": "id", "foreign_keys": {"boss": "person"}},
        "game": {"foreign_keys": {"home": "person", "away": "person"}},
    }
    graph = build(tables, schema)
    assert edges(graph.relation("f2p_boss")) == [(0, 2), (1, 2)]
    assert edges(graph.relation("f2p_home")) == [(0, 0), (1, 1)]
    assert edges(graph.relation("f2p_away")) == [(0, 1), (1, 1)]


def test_the_graph_is_stored(tmp_path):
    build(schema={**SCHEMA, "customers": {"primary_key": "id", "columns": {"country": "keep"}}}).save(tmp_path / "g")
    assert bs.load(tmp_path / "g").type("customers").extra["country"].tolist() == ["de", "fr", "de"]


# --- what is wrong --------------------------------------------------------------------------------------------


def orders(**changes):
    return {**TABLES, "orders": {**ORDERS, **changes}}


def customers(**changes):
    return {**TABLES, "customers": {**CUSTOMERS, **changes}}


DAMAGED = {
    "a dangling key": (orders(customer=[10, 99, 30, 10]), r"^table 'orders': column 'customer': row 1 holds 99; which is no key in table 'customers': column 'id'"),
    "a dangling text": (orders(seller=["ann", "eve", "bob", "bob"]), r"table 'orders': column 'seller': row 1 holds 'eve'"),
    "a repeated key": (customers(id=[10, 30, 10]), r"table 'customers': column 'id': row 2 holds 10; which is the primary key of row 0 too"),
    "a repeated key that nothing names": (orders(order=[1, 2, 3, 2]), r"table 'orders': column 'order': row 3 holds 2"),
    "a repeated text": ({**TABLES, "sellers": {"name": ["a", "a"], "since": [1, 2]}}, r"table 'sellers': column 'name': row 1 holds 'a'"),
    "a key that is missing": (customers(id=[10, None, 30]), r"table 'customers': column 'id': row 1 holds nothing; use a primary key in each row"),
    "a key that is no whole number": (orders(customer=[10.5, 10, 10, 10]), r"table 'orders': column 'customer': row 0 holds 10\.5"),
    "a key that floats skip": (orders(customer=[10, 2.0**60, 10, 10]), r"table 'orders': column 'customer': row 1"),
    "keys of two types": (orders(customer=np.array(["10", "20", "30", "10"])), r"table 'orders': column 'customer': holds text values, and table 'customers': column 'id' number values"),
    "no time": (orders(when=np.array(["2020", "2021", "NaT", "2022"], "datetime64[D]")), r"table 'orders': column 'when': row 2 holds no time"),
    "times of floats": (orders(when=[1.0, 2.0, 3.5, 4.0]), r"table 'orders': column 'when': got float64"),
    "times of text": (orders(when=["2020", "2021", "2022", "2023"]), r"table 'orders': column 'when': row 0 holds '2020'; use dates"),
    "times that are cut": (orders(when=np.array(["2020", "2021", "2022-01-01T00:00:00.5", "2023"], "datetime64[ms]")), r"column 'when': row 2 is 2022-01-01T00:00:00\.500, no whole number of the unit 's'"),
    "an infinite number": (orders(paid=[1.0, np.inf, 2, 3]), r"table 'orders': column 'paid': row 1 holds inf"),
    "columns of two lengths": (orders(paid=[1, 2, 3]), r"table 'orders': its columns must have one length"),
    "a column of two dimensions": (orders(paid=np.zeros((4, 2))), r"table 'orders': column 'paid': has shape \(4, 2\)"),
    "complex numbers": (orders(paid=np.zeros(4, complex)), r"table 'orders': column 'paid': holds complex128"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_wrong_tables_are_refused_by_table_column_and_row(case):
    tables, names = DAMAGED[case]
    with pytest.raises(DataError, match=names):
        build(tables)


def test_a_table_whose_name_holds_a_colon_is_refused():
    with pytest.raises(DataError, match="type 'shop:orders': relations are named source:name:destination; use a name without a colon"):
        bs.from_tables({"shop:orders": {"order": [1, 2]}}, {"shop:orders": {"primary_key": "order"}})


def test_years_and_dates_are_not_mixed():
    """2009 would be 2009 seconds after 1970, before every date."""
    tables = {
        "races": {"id": [1, 2], "year": [2009, 2010]},
        "results": {"race": [1, 2], "date": np.array(["2009-03-29", "2010-03-14"], "M8[s]")},
    }
    schema = {"races": {"primary_key": "id", "time": "year"}, "results": {"foreign_keys": {"race": "races"}, "time": "date"}}
    with pytest.raises(DataError, match=r"of one kind: .*races.*year.* holds numbers, .*results.*date.* holds dates; use dates in all"):
        bs.from_tables(tables, schema)


def schema(**changes):
    return {**SCHEMA, "orders": {**SCHEMA["orders"], **changes}}


MISTAKEN = {
    "an unknown table": ({**SCHEMA, "order": {}}, "schema: there is no table 'order'; did you mean 'orders'"),
    "a key to an unknown table": (schema(foreign_keys={"customer": "customer"}), "foreign key 'customer': there is no table 'customer'; did you mean 'customers'"),
    "a key to a table without one": ({**SCHEMA, "customers": {}}, "table 'customers' has no primary_key"),
    "an unknown column": (schema(time="wen"), "schema of table 'orders': time: there is no column 'wen'; did you mean 'when'"),
    "an unknown foreign column": (schema(foreign_keys={"custmer": "customers"}), "foreign_keys: there is no column 'custmer'; did you mean 'customer'"),
    "an unknown field": (schema(primary="order"), "schema of table 'orders': primary: is not known; did you mean 'primary_key'"),
    "an unknown use": (schema(columns={"paid": "text"}), r"schema of table 'orders': columns\.paid"),
    "a use of no column": (schema(columns={"payed": "drop"}), "columns: there is no column 'payed'; did you mean 'paid'"),
    "a number for a name": (schema(time=3), "schema of table 'orders': time"),
    "no dict": ({"orders": ["order"]}, "schema of table 'orders'"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKEN)
def test_wrong_schemas_are_refused(case):
    given, names = MISTAKEN[case]
    with pytest.raises(UsageError, match=names):
        build(schema=given)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"time_unit": "sec"}, "time_unit: got 'sec'; use D, h"),
        ({"until": "yesterday"}, "until: got 'yesterday'"),
        ({"until": True}, "until: got True"),
        ({"fit_until": np.datetime64("NaT", "s")}, "fit_until: got"),
        ({"fit_until": "NaT"}, "fit_until: got 'NaT'"),
        ({"until": "2020-01-01T00:00:00.5"}, "until: .* finer time_unit"),
    ],
)
def test_wrong_options_are_refused(options, names):
    with pytest.raises(UsageError, match=names):
        build(**options)


@pytest.mark.parametrize("tables", [None, [1], {"a": 3}, {3: {"x": [1]}}, {"a": "missing.parquet"}])
def test_what_is_no_table_is_refused(tables):
    with pytest.raises((UsageError, DataError), match=r"table|missing\.parquet"):
        build(tables, {})


# --- pandas and pyarrow ---------------------------------------------------------------------------------------


def as_frames(pandas):
    frames = {name: pandas.DataFrame(table) for name, table in TABLES.items()}
    frames["orders"]["customer"] = frames["orders"]["customer"].astype("Int64")
    frames["customers"]["country"] = frames["customers"]["country"].astype("category")
    frames["customers"]["vip"] = frames["customers"]["vip"].astype("boolean")
    frames["orders"]["when"] = pandas.to_datetime(frames["orders"]["when"]).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    return frames


def assert_shop(graph):
    expected = build(schema={**SCHEMA, "customers": {"primary_key": "id", "columns": {"country": "category"}}})
    for one, other in zip(graph.relations, expected.relations, strict=True):
        assert (one.key, edges(one)) == (other.key, edges(other))
    for one, other in zip(graph.types, expected.types, strict=True):
        np.testing.assert_array_equal(one.features, other.features)
        assert (one.times is None) == (other.times is None)
        if other.times is not None:
            np.testing.assert_array_equal(one.times, other.times)
        for name in other.extra:
            np.testing.assert_array_equal(one.extra[name], other.extra[name])


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_data_frames_of_any_dtype_make_the_same_graph(unit):
    pandas = pytest.importorskip("pandas")
    frames = as_frames(pandas)
    frames["orders"]["when"] = frames["orders"]["when"].dt.as_unit(unit)
    assert_shop(build(frames))


def test_columns_of_any_pandas_type_are_the_same():
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    numbers, dates = [1.5, None, 3.0], pandas.to_datetime(["2020-01-01T10:00:00", None, "1960-01-01T00:00:00"])
    kinds = {
        "float": pandas.Series(numbers), "Float64": pandas.Series(numbers, dtype="Float64"), "arrow": pandas.Series(numbers, dtype="double[pyarrow]"),
        "object": pandas.Series(numbers, dtype=object),
    }  # fmt: skip
    times = {
        "plain": pandas.Series(dates), "zone": pandas.Series(dates.tz_localize("UTC").tz_convert("Asia/Tokyo")),
        "arrow": pandas.Series(dates).astype("timestamp[us][pyarrow]"),
        "arrow zone": pandas.Series(dates.tz_localize("UTC")).astype(pandas.ArrowDtype(arrow.timestamp("us", tz="Europe/Paris"))),
        "object": pandas.Series([None if pandas.isna(date) else date.to_pydatetime() for date in dates], dtype=object),
    }  # fmt: skip
    for group, expected in ((kinds, [1.5, np.nan, 3.0]), (times, ["2020-01-01T10:00:00", "NaT", "1960-01-01T00:00:00"])):
        for kind, series in group.items():
            column = columns_of("t", pandas.DataFrame({"c": series}))["c"]
            assert column.missing.tolist() == [False, True, False], kind
            known = column.values[~column.missing]
            np.testing.assert_array_equal(known, np.array(expected, known.dtype)[[0, 2]], err_msg=kind)


def test_an_index_without_a_name_is_no_column(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"x": [1.0, 2.0]}, index=[7, 9]).to_parquet(tmp_path / "a.parquet")
    assert list(columns_of("a", tmp_path / "a.parquet")) == ["x"]


def test_joins_agree_with_pandas():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    left = pandas.DataFrame({"k": rng.permutation(200)})
    right = pandas.DataFrame({"f": pandas.array(np.where(rng.random(900) < 0.1, None, rng.integers(0, 200, 900)), "Int64")})
    graph = build({"a": left, "b": right}, {"a": {"primary_key": "k"}, "b": {"foreign_keys": {"f": "a"}}})
    joined = right.reset_index(names="row").dropna().astype("int64").merge(left.reset_index(names="one"), left_on="f", right_on="k")
    assert sorted(edges(graph.relation("f2p_f"))) == sorted(zip(joined["row"], joined["one"], strict=True))


def test_parquet_files_and_arrow_tables_make_the_same_graph(tmp_path):
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frames = as_frames(pandas)
    for name, frame in frames.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
    assert_shop(build({name: str(tmp_path / f"{name}.parquet") for name in frames}))
    assert_shop(build({name: arrow.Table.from_pandas(frame) for name, frame in frames.items()}))


def test_the_tables_of_relbench_carry_their_keys():
    def table(name, columns):  # relbench.base.Table
        own = SCHEMA[name]
        keys = {"fkey_col_to_pkey_table": own.get("foreign_keys", {}), "pkey_col": own.get("primary_key"), "time_col": own.get("time")}
        return SimpleNamespace(df=columns, **keys)

    database = SimpleNamespace(table_dict={name: table(name, columns) for name, columns in TABLES.items()})
    graph, expected = build(database, None), build()
    assert [edges(one) for one in graph.relations] == [edges(one) for one in expected.relations]
    np.testing.assert_array_equal(graph.type("orders").times, expected.type("orders").times)


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"PAR1" + bytes(40) + b"PAR1", json.dumps({}).encode()])
def test_damaged_parquet_files_are_refused(tmp_path, damage):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(damage)
    with pytest.raises(DataError, match=r"a\.parquet: is no Parquet file"):
        build({"a": tmp_path / "a.parquet"}, {})


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=r"a\.parquet: reading Parquet needs pyarrow; pip install 'bulksample\[tables\]'"):
        build({"a": tmp_path / "a.parquet"}, {})


# --- a folder with a schema file ------------------------------------------------------------------------------


def write_folder(folder):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    for name, frame in as_frames(pandas).items():
        frame.to_parquet(folder / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("name", ["schema.yaml", "schema.yml", "schema.json"])
def test_a_folder_with_a_schema_file_is_the_graph_of_its_tables(tmp_path, name):
    write_folder(tmp_path)
    (tmp_path / "orders.parquet").rename(tmp_path / "orders-2021.parquet")
    tables = {**SCHEMA, "orders": {**SCHEMA["orders"], "file": "orders-2021.parquet"}}
    (tmp_path / name).write_text(json.dumps({"tables": tables}))  # JSON is YAML
    graph, report = read_folder(tmp_path)
    assert_shop(graph)
    assert report["orders"] == {
        "rows": 4, "rows_after_until": 0, "features": ["paid"], "categories": {}, "left_out": [], "missing_keys": {"customer": 1, "seller": 1},
    }  # fmt: skip
    assert report["customers"]["features"] == ["age", "vip", "age is missing"]
    assert report["customers"]["categories"] == {"country": 2}
    assert graph.name == tmp_path.name


SCHEMA_FILES = {
    "no YAML": ("tables: [", r"schema\.yaml: is not YAML"),
    "no tables": ("{}", r"schema\.yaml: tables: Field required"),
    "a list": ("[1, 2]", r"schema\.yaml"),
    "an unknown field": ("tables: {orders: {pk: order}}", r"schema\.yaml: tables\.orders\.pk: is not known; use primary_key"),
    "a number for a name": ("tables: {orders: {time: 3}}", r"schema\.yaml: tables\.orders\.time"),
    "a Python object": ("tables: !!python/object/apply:os.getcwd []", r"schema\.yaml: is not YAML"),
    "a missing file": ("tables: {nothing: {}}", r"nothing\.parquet: cannot be read"),
}


@pytest.mark.parametrize("case", SCHEMA_FILES)
def test_wrong_schema_files_are_refused(tmp_path, case):
    if case == "a missing file":
        pytest.importorskip("pyarrow")
    text, names = SCHEMA_FILES[case]
    (tmp_path / "schema.yaml").write_text(text)
    with pytest.raises(DataError, match=names):
        read_folder(tmp_path)


def test_a_folder_needs_one_schema_file(tmp_path):
    for found in ("no", "2"):
        with pytest.raises(DataError, match=f"has {found} schema files; use one of schema.yaml"):
            read_folder(tmp_path)
        for name in ("schema.yaml", "schema.json"):
            (tmp_path / name).write_text("{}")
    with pytest.raises(DataError, match="there is no such folder"):
        read_folder(tmp_path / "gone")

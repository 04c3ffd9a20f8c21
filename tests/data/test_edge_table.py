"""Tables of labelled pairs: the same from every form and file, against columns written out; and every way in which one is wrong."""

# ruff: noqa: E501 (a case is a line)

import hashlib
import os
import re
import sys

import numpy as np
import pytest
from samples import UNPICKLED, Bomb
from sweeps import sweep
from test_malformed import mutated

from bulksample import DataError, UsageError
from bulksample.data.edge_table import EdgeTable, read_edge_table
from bulksample.graph.vertex_table import default_split

TABLE = {
    "id": ["a", "b", "c", "d", "e"],
    "source": [0, 4, 2, 2, 0],
    "destination": [1, 0, 2, 2, 1],
    "label": [1, 0, None, 2, 1],
    "split": ["train", "val", None, "train", "test"],
    "time": [50, -3, 7, 8, 9],
    "feature_z": [0.5, 1.25, -2.0, 0.1, 3.0],
    "feature_a": [1, 0, 7, 2**24, -5],
    "feature_10": [True, False, True, True, False],
}
FEATURES = np.array([[0.5, 1, 1], [1.25, 0, 0], [-2, 7, 1], [0.1, 2**24, 1], [3, -5, 0]], np.float32)


def frame(table, **types):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(table).astype(types)


def arrow(table, folder):
    return pytest.importorskip("pyarrow").table(table)


def written_csv(table, folder):
    pytest.importorskip("pyarrow")
    whole = {"label": "Int64"} if all(isinstance(one, int | None) for one in table.get("label", "-")) else {}  # others stay as they are
    frame(table, **whole).to_csv(folder / "pairs.csv", index=False)
    return folder / "pairs.csv"


def arrow_csv(table, folder):
    pytest.importorskip("pyarrow.csv").write_csv(arrow(table, folder), folder / "PAIRS.CSV")
    return str(folder / "PAIRS.CSV")


def parquet(table, folder, name="pairs.parquet"):
    pytest.importorskip("pyarrow.parquet").write_table(arrow(table, folder), folder / name)
    return folder / name


def pandas_parquet(table, folder):
    pytest.importorskip("pyarrow")
    frame(table, label="Int64", split="category").set_index("id").to_parquet(folder / "pairs.pq")
    return folder / "pairs.pq"


def npz(table, folder):
    filled = {"label": -1, "split": ""}
    np.savez(
        folder / "pairs.npz",
        **{key: np.array([filled.get(key) if one is None else one for one in column]) for key, column in table.items()},
    )
    return folder / "pairs.npz"


def wide_npz(table, folder):
    """Features as one matrix, splits as masks, integers of other widths and another order of bytes."""
    arrays = {key: np.array(column) for key, column in table.items() if key in ("id", "source", "destination", "time")}
    labels = np.array([-1 if one is None else one for one in table["label"]], np.int8)
    masks = {"train": np.array([one == "train" for one in table["split"]]), "val_mask": np.array([one == "val" for one in table["split"]])}
    matrix = np.stack([np.array(table[key], float) for key in table if key.startswith("feature_")], axis=1)
    masks["test"] = np.array([one == "test" for one in table["split"]])
    arrays |= {"source": arrays["source"].astype(">i4"), "destination": arrays["destination"].astype(np.uint16)}
    np.savez_compressed(
        folder / "pairs.npz", label=labels, features=np.asfortranarray(matrix), **masks, **arrays, of_a_user=np.zeros((2, 3, 4))
    )
    return folder / "pairs.npz"


def tensors(table, folder):
    torch = pytest.importorskip("torch")
    known = {key: torch.tensor(column) for key, column in table.items() if key not in ("id", "label", "split")}
    return {
        **known,
        "label": torch.tensor([-1 if one is None else one for one in table["label"]], dtype=torch.int32),
        "split": table["split"],
    }


FORMS = {
    "a dict of lists": lambda table, folder: table,
    "a dict of arrays": lambda table, folder: {key: np.array(column) for key, column in table.items()},
    "tensors": tensors,
    "a frame with gaps": lambda table, folder: frame(table, label="Int64"),
    "a frame of categories": lambda table, folder: frame(
        frame(table, label="Int64"), **{key: "category" for key in ("source", "split", "label")}
    ),
    "a frame by arrow": lambda table, folder: frame(table, source="int64[pyarrow]", label="int64[pyarrow]", split="string[pyarrow]"),
    "a frame with floats": lambda table, folder: frame(table, source=float, destination=float, time=float, label="Int64"),
    "a dict of series": lambda table, folder: dict(frame(table, label="Int64", split="category")),
    "an arrow table": arrow,
    "csv by pandas": written_csv,
    "csv by pyarrow": arrow_csv,
    "parquet by pyarrow": parquet,
    "parquet by pandas": pandas_parquet,
    "npz": npz,
    "npz of matrices and masks": wide_npz,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_columns(tmp_path, form):
    given = FORMS[form](TABLE, tmp_path)
    table = read_edge_table(given)
    assert table.name == (os.path.basename(given) if isinstance(given, str | os.PathLike) else "edge_labels")
    expected = {
        "sources": np.array([0, 4, 2, 2, 0]), "destinations": np.array([1, 0, 2, 2, 1]), "labels": np.array([1, 0, -1, 2, 1]),
        "times": np.array([50, -3, 7, 8, 9]), "features": FEATURES,
    }  # fmt: skip
    for key, column in expected.items():
        np.testing.assert_array_equal(getattr(table, key), column)
        assert getattr(table, key).dtype == column.dtype
    assert {key: mask.tolist() for key, mask in table.masks.items()} == {
        "train": [1, 0, 0, 1, 0],
        "val": [0, 1, 0, 0, 0],
        "test": [0, 0, 0, 0, 1],
    }
    assert all(mask.dtype == bool for mask in table.masks.values())
    assert (table.num_classes, table.target, len(table)) == (3, "class", 5)
    assert table.identity == read_edge_table(TABLE, "another name").identity
    assert table.nbytes == 5 * (4 * 8 + 3 + 3 * 4)


@sweep("turn", range(20), quick=2)
def test_any_table_is_the_same_from_every_file(tmp_path, turn):
    rng = np.random.default_rng(turn)
    e, t, d = int(rng.integers(1, 90)), int(rng.integers(2, 12)), int(rng.integers(0, 12))
    table = {"source": rng.integers(0, 2**40, e), "destination": rng.integers(0, 9, e), "note": rng.random(e)}
    labels = rng.normal(size=(e, t)).astype(np.float32)
    labels[rng.random((e, t)) < 0.3] = np.nan
    labels[0, 0] = 0.5
    features = rng.normal(size=(e, d)).astype(np.float32)
    order = rng.permutation(t)
    table |= {f"y_{k}": labels[:, k] for k in order}  # their numbers order them, not their places: 10 follows 9
    table |= {f"feature_{k}": features[:, k] for k in rng.permutation(d)}
    features = np.stack([table[key] for key in table if key.startswith("feature_")], axis=1) if d else None
    known = ~np.isnan(labels).all(axis=1)
    split = np.where(known, rng.choice(["train", "val", "test", ""], e), "")
    table["split"] = [one or None for one in split]
    for make in (lambda table, folder: table, arrow, written_csv, arrow_csv, parquet, npz):
        read = read_edge_table(make(table, tmp_path), label="y")
        np.testing.assert_array_equal(read.sources, table["source"])
        np.testing.assert_array_equal(read.labels, labels)
        assert (read.labels.dtype, read.num_classes, read.target, read.times) == (np.float32, t, "regression", None)
        np.testing.assert_array_equal(read.rows("all"), np.flatnonzero(known))
        assert (read.features is None) == (features is None)
        if d:
            np.testing.assert_array_equal(read.features, features)
        for name in set(split) - {""}:
            np.testing.assert_array_equal(read.rows(name), np.flatnonzero(split == name))
            assert read.rows(name).dtype == np.int64


ENDS = {"source": [0, 1, 2], "destination": [2, 1, 0]}
LABELS = {
    "classes": ([2, 0, -1], {}, np.array([2, 0, -1]), 3),
    "booleans": ([True, False, None], {}, np.array([1, 0, -1]), 2),
    "real numbers": ([0.5, np.nan, 2], {}, np.array([[0.5], [np.nan], [2]], np.float32), 1),
    "whole numbers with a gap as classes": ([1.0, np.nan, 2.0], {"target": "class"}, np.array([1, -1, 2]), 3),
    "whole numbers with a gap as numbers": ([1.0, np.nan, 2.0], {"target": "regression"}, np.array([[1], [np.nan], [2]], np.float32), 1),
    "integers with a gap as numbers": ([1, None, 7], {"target": "regression"}, np.array([[1], [np.nan], [7]], np.float32), 1),
    "integers with a gap of two classes": ([1, None, 0], {"target": "multilabel"}, np.array([[1], [-1], [0]], np.int8), 1),
    "masked integers": (np.ma.array([3, 1, 2], mask=[1, 0, 0]), {}, np.array([-1, 1, 2]), 3),
    "masked numbers": (np.ma.array([0.5, 1, 2], mask=[0, 0, 1]), {}, np.array([[0.5], [1], [np.nan]], np.float32), 1),
    "several classes": ([[1, 0], [-1, -1], [0, 0]], {}, np.array([[1, 0], [-1, -1], [0, 0]], np.int8), 2),
    "several classes, masked": (np.ma.array([[1, 0], [1, 1], [0, 0]], mask=[[0, 0], [1, 1], [0, 1]]), {}, np.array([[1, 0], [-1, -1], [0, -1]], np.int8), 2),
    "several classes as floats": (np.array([[1, 0], [np.nan, 1], [0, 0]]), {}, np.array([[1, 0], [-1, 1], [0, 0]], np.int8), 2),
    "several numbers": (np.array([[1, 0], [np.nan, 3], [0, 0]]), {}, np.array([[1, 0], [np.nan, 3], [0, 0]], np.float32), 2),
    "a matrix of one column": ([[1], [0], [3]], {}, np.array([1, 0, 3]), 4),
    "unsigned classes": (np.array([1, 0, 3], np.uint64), {}, np.array([1, 0, 3]), 4),
}  # fmt: skip


@pytest.mark.parametrize("case", LABELS)
def test_labels_of_every_target(case):
    column, options, expected, outputs = LABELS[case]
    given = column.copy() if hasattr(column, "copy") else column
    table = read_edge_table({**ENDS, "label": given}, **options)
    np.testing.assert_array_equal(table.labels, expected)
    assert (table.labels.dtype, table.num_classes) == (expected.dtype, outputs)
    np.testing.assert_array_equal(np.ma.getdata(given), np.ma.getdata(column))  # those of the user stay


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([[1, None, 0], [0, None, 1]], np.array([[1, 0], [-1, -1], [0, 1]], np.int8)),
        ([[1, None, 0], [0.0, None, 1.0]], np.array([[1, 0], [-1, -1], [0, 1]], np.int8)),
        ([[True, None, False], [None, None, None]], np.array([[1, -1], [-1, -1], [0, -1]], np.int8)),
        ([[1, None, 7], [0.5, 2.0, None]], np.array([[1, 0.5], [np.nan, 2], [7, np.nan]], np.float32)),
    ],
)
def test_columns_of_labels_with_gaps(tmp_path, columns, expected):
    given = {**ENDS, "label_1": columns[1], "label_0": columns[0]}
    for make in (lambda table, folder: table, arrow, arrow_csv, parquet):
        table = read_edge_table(make(given, tmp_path))
        np.testing.assert_array_equal(table.labels, expected)
        assert table.labels.dtype == expected.dtype


def test_a_label_is_never_a_feature():
    table = {
        **ENDS,
        "label": [5, 5, 5],
        "feature_0": [1, 2, 3],
        "feature_1": [4, 5, 6],
        "feature_rate_0": [0, 1, 1],
        "feature_rate_1": [1, 1, 0],
    }
    read = read_edge_table(table, label="feature_1")
    np.testing.assert_array_equal(read.labels, [4, 5, 6])
    np.testing.assert_array_equal(read.features, [[1, 0, 1], [2, 1, 1], [3, 1, 0]])
    to_predict = read_edge_table({key: column for key, column in table.items() if key != "label"}, label="feature_1", labelled=False)
    np.testing.assert_array_equal(to_predict.features, read.features)
    read = read_edge_table(table, label="feature_rate")
    np.testing.assert_array_equal(read.labels, [[0, 1], [1, 1], [1, 0]])
    np.testing.assert_array_equal(read.features, [[1, 4], [2, 5], [3, 6]])
    read = read_edge_table({**ENDS, "features": [0, 1, 0], "feature_1": [1.5, 2, 3]}, label="features")
    np.testing.assert_array_equal(read.labels, [0, 1, 0])
    np.testing.assert_array_equal(read.features, [[1.5], [2], [3]])
    read = read_edge_table({**ENDS, "y": [0, 1, 0], "y_0": [1.5, 2, 3], "label_0": ["a", "b", "c"]}, label="y")
    np.testing.assert_array_equal(read.labels, [0, 1, 0])  # the one that is named


def test_pairs_to_predict_need_no_labels(tmp_path):
    given = {**ENDS, "label": ["?", "?", "?"], "split": ["none", "of", "these"], "time": [1, 2, 3], "features": np.ones((3, 2), np.float16)}
    table = read_edge_table(given, labelled=False)
    assert (table.labels, table.num_classes, table.target, table.masks) == (None, 0, None, {})
    np.testing.assert_array_equal(table.times, [1, 2, 3])
    np.testing.assert_array_equal(table.features, np.ones((3, 2)))
    np.testing.assert_array_equal(table.rows("all"), [0, 1, 2])
    for empty in ({"source": [], "destination": [], "feature_0": []}, {"source": [], "destination": [], "features": np.zeros((0, 1))}):
        read = read_edge_table(empty, labelled=False)
        assert (len(read), read.sources.dtype, read.features.shape, read.features.dtype) == (0, np.int64, (0, 1), np.float32)
    assert len(read_edge_table({**ENDS, "label": [0], "label_7": [1]}, labelled=False)) == 3  # not even their names are checked
    pytest.importorskip("pyarrow")
    (tmp_path / "head.csv").write_text("source,destination,time,feature_0\n")
    read = read_edge_table(tmp_path / "head.csv", labelled=False)
    assert (len(read), len(read.times), read.features.shape) == (0, 0, (0, 1))


def test_a_csv_file_whose_columns_change_their_type_late(tmp_path):
    """The first MiB of a feature is integers, of a label empty, of an id numbers: pyarrow reads blocks of 1 MiB."""
    pytest.importorskip("pyarrow")
    rows = ["source,destination,label,feature_0,id"] + ["0,1,,7,1"] * 200_000 + ["1,0,2,0.5,x"]
    (tmp_path / "late.csv").write_text("\n".join(rows))
    table = read_edge_table(tmp_path / "late.csv")
    assert (len(table), table.features[-1, 0], table.labels[-1]) == (200_001, 0.5, 2)
    assert table.rows("all").tolist() == [200_000]


def test_the_identity_is_of_every_column():
    table = read_edge_table(TABLE)
    parts = {
        "source": table.sources,
        "destination": table.destinations,
        "label": table.labels,
        "time": table.times,
        "features": table.features,
        **table.masks,
    }
    oracle = hashlib.sha256()
    for name in sorted(parts):
        oracle.update(f"{name} {parts[name].dtype.str} {parts[name].shape}\n".encode() + parts[name].tobytes())
    assert table.identity == oracle.hexdigest()
    changes = {
        "source": [1, 4, 2, 2, 0], "destination": [0, 0, 2, 2, 1], "label": [1, 0, None, 2, 0], "split": ["train", "val", None, "train", "val"],
        "time": [50, -3, 7, 8, 0], "feature_z": [0.5, 1.25, -2.0, 0.1, 3.5],
    }  # fmt: skip
    known = {table.identity} | {read_edge_table({**TABLE, key: column}).identity for key, column in changes.items()}
    without = [{other: TABLE[other] for other in TABLE if other != key} for key in ("split", "time", "feature_z")]
    known |= {read_edge_table(one).identity for one in without} | {read_edge_table(TABLE, labelled=False).identity}
    assert len(known) == 1 + len(changes) + len(without) + 1
    assert read_edge_table({**TABLE, "id": [1, 2, 3, 4, 5]}).identity == table.identity


def test_splits():
    table = read_edge_table({**ENDS, "label": [0, 1, None], "train": [True, False, False], "test": [False, False, False]})
    assert table.rows("train").tolist() == [0]
    assert table.rows("all").tolist() == [0, 1]
    assert table.default_split() == "train"
    numbers = read_edge_table({**ENDS, "label": [0, 1, None], "train": [1, 0, 0], "test": [0, 0, 0]})
    assert numbers.identity == table.identity
    with pytest.raises(UsageError, match=r"^edge_labels: has no 'test' split; it has train, all$"):
        table.rows("test")
    with pytest.raises(UsageError, match=r"^pairs: has no 'valid' split; it has all$"):
        read_edge_table({**ENDS, "label": [0, 1, None]}, "pairs").rows("valid")


def test_no_split_to_train_on():
    with pytest.raises(UsageError, match=r"^edge_labels: has no splits; use a column 'split' of train, val and test, or seeds all$"):
        read_edge_table({**ENDS, "label": [0, 1, 1]}).default_split()
    only = read_edge_table({**ENDS, "label": [0, 1, 1], "split": ["val", "test", None]}, "p")
    with pytest.raises(
        UsageError,
        match=r"^no edge is in the training split: p has only the masks val, test; name the seeds, use seeds all, which includes their edges, or val or test$",
    ):
        only.default_split()
    with pytest.raises(
        UsageError,
        match=r"^no vertex is in the training split: graph 'g' has only the masks val; .* all, which includes their vertices, or val$",
    ):
        default_split("graph 'g'", {"val": True})


def test_ends_must_be_vertices_of_their_types():
    table = read_edge_table({"source": [0, 1, 4], "destination": [2, 1, 0]}, labelled=False)
    table.check_ends(("user", 5), ("item", 3))
    with pytest.raises(DataError, match=r"^edge_labels: row 2 has source 4, and type 'user' has 4 vertices: use 0 to 3$"):
        table.check_ends(("user", 4), ("item", 3))
    with pytest.raises(DataError, match=r"^edge_labels: row 0 has destination 2, and type 'item' has 2 vertices: use 0 to 1$"):
        table.check_ends(("user", 5), ("item", 2))
    with pytest.raises(DataError, match="row 1 has source -7"):
        EdgeTable("made", np.array([0, -7]), np.array([0, 0])).check_ends(("v", 1), ("v", 1))


# --- what is wrong --------------------------------------------------------------------------------------------


def changed(**columns):
    return {key: column for key, column in {**TABLE, **columns}.items() if column is not None}


HERE = "The columns are id, source, "
NUMBERED = "use a column label, or label_0, label_1 and so on without gaps$"
DATES = np.array(["2020-01-01"] * 5, "datetime64[D]")
DAMAGED = {
    "no source": (changed(source=None, src=[1] * 5), r"there is no column 'source'; did you mean 'src'\? The columns are id, destination, label, .*, src$"),
    "no destination": (changed(destination=None, destinations=[1] * 5), r"there is no column 'destination'; did you mean 'destinations'\? " + HERE),
    "nothing like a source": (changed(source=None), "there is no column 'source'; the columns are id, destination, label, split, time, feature_z, feature_a, feature_10$"),
    "no columns": ({}, "there is no column 'source'; the table has none"),
    "no label": (changed(label=None, labels=[0] * 5), r"there is no column 'label'; did you mean 'labels'\? " + HERE),
    "a gap in the columns of labels": (changed(label=None, label_0=[0] * 5, label_2=[0] * 5), "has columns label_0, label_2; " + NUMBERED),
    "columns of labels from 1": (changed(label=None, label_1=[0] * 5), "has columns label_1; " + NUMBERED),
    "a column of labels twice": (changed(label=None, label_0=[0] * 5, label_00=[0] * 5), "has columns label_0, label_00; " + NUMBERED),
    "a matrix among columns of labels": (changed(label=None, label_0=np.zeros((5, 2)), label_1=[0] * 5), r"column 'label_0': has shape \(5, 2\)"),
    "a label and columns of labels": (changed(label_0=[0] * 5), "has columns label, label_0; " + NUMBERED),
    "features and columns of features": (changed(features=np.ones((5, 1))), r"has columns 'features' and 'feature_z'; use a matrix, or columns feature_\*$"),
    "no rows": ({"source": [], "destination": [], "label": []}, "has no rows; use one for each pair with a label$"),
    "columns of two lengths": (changed(time=[1, 2]), r"its columns must have one length; got \{.*'time': 2"),
    "a source without": (changed(source=[1, 2, np.nan, 2, 1]), "column 'source': row 2 holds nothing; use whole numbers from 0 in each row$"),
    "a source of none": (changed(source=[1, None, 3, 2, 1]), "column 'source': row 1 holds nothing; use whole numbers from 0 in each row$"),
    "sources of none": (changed(source=[None] * 5), "column 'source': row 0 holds nothing"),
    "a source below 0": (changed(source=[1, 2, 3, -1, 1]), "column 'source': row 3 holds -1; use whole numbers from 0, below"),
    "half a destination": (changed(destination=[1, 2.5, 3, 1, 1]), r"column 'destination': row 1 holds 2\.5; use whole numbers from 0"),
    "an infinite destination": (changed(destination=[1, 2, 3, np.inf, 1]), "column 'destination': row 3 holds inf"),
    "a source beyond any integer": (changed(source=[1, 2, 2**70, 1, 1]), "column 'source': row 2 holds 1180591620717411303424; use whole numbers from 0$"),
    "a source among numbers": (changed(source=np.array([1, 2, "x", 1, 1], object)), "column 'source': row 2 holds 'x'; use whole numbers from 0$"),
    "a source that floats skip": (changed(source=[1, 2, 2.0**53, 1, 1]), r"column 'source': row 2 holds 9007199254740992\.0; .* exact$"),
    "a source that short floats skip": (changed(source=np.array([1, 2, 2**24, 1, 1], np.float32)), r"column 'source': row 2 holds 16777216\.0; .* exact$"),
    "a source beyond int64": (changed(source=np.array([1, 2, 3, 4, 2**63], np.uint64)), "column 'source': row 4 holds 9223372036854775808; .* below 2"),
    "sources of text": (changed(source=TABLE["id"]), "column 'source': row 0 holds 'a'; use whole numbers from 0$"),
    "sources of booleans": (changed(source=[True] * 5), "column 'source': row 0 holds True; use whole numbers from 0$"),
    "sources of dates": (changed(source=DATES), "column 'source': holds dates; use whole numbers from 0$"),
    "sources of two dimensions": (changed(source=np.ones((5, 2), int)), r"column 'source': has shape \(5, 2\); use one value for each row"),
    "a ragged list": (changed(source=[[1], [1, 2], [], [1], [1]]), "column 'source': cannot be read as an array"),
    "times of dates": (changed(time=DATES), "column 'time': holds dates; use whole numbers in the unit of the times of the graph$"),
    "a word among numbers as text": (changed(source=["0", "1", "x", "1", "1"]), "column 'source': row 2 holds 'x'; use whole numbers from 0$"),
    "times of text": (changed(time=["2020"] * 5), "column 'time': row 0 holds '2020'; use whole numbers in the unit of the times of the graph$"),
    "no time": (changed(time=[1, 2, 3, None, 5]), "column 'time': row 3 holds nothing; use whole numbers in the unit of the times of the graph in each row$"),
    "half a time": (changed(time=[1, 2, 3, 0.5, 5]), r"column 'time': row 3 holds 0\.5; use whole numbers in the unit"),
    "labels of text": (changed(label=[None, "fraud", "ok", "ok", "ok"]), "column 'label': row 1 holds 'fraud'; use numbers as labels: number the classes from 0$"),
    "labels of numbers and text": (changed(label=np.array([0, 1, "fraud", 1, 1], object)), "column 'label': row 2 holds 'fraud'; use numbers as labels"),
    "a label in a column of labels": (changed(label=None, label_0=[0] * 5, label_1=["x"] * 5), "column 'label_1': row 0 holds 'x'; use numbers as labels"),
    "labels of dates": (changed(label=DATES), "column 'label': holds dates; use numbers as labels"),
    "a matrix of text": (changed(label=np.full((5, 2), "a")), r"column 'label': got <U1 of shape \(5, 2\); use numbers or booleans"),
    "a cube of labels": (changed(label=np.zeros((5, 2, 2))), r"column 'label': got float64 of shape \(5, 2, 2\); use a matrix of 5 rows"),
    "a matrix of another length": (changed(label=np.zeros((4, 2))), r"column 'label': got float64 of shape \(4, 2\); use a matrix of 5 rows, one for each pair"),
    "one label": (changed(label=3), r"column 'label': has shape \(\)"),
    "no labels": (changed(label=[None] * 5), "column 'label': holds no label; use one or more"),
    "labels of -1": (changed(label=[-1] * 5, split=None), "column 'label': holds no label"),
    "labels of NaN": (changed(label=None, label_0=[np.nan] * 5, label_1=[None] * 5), "columns 'label_0' to 'label_1': holds no label"),
    "a label below -1": (changed(label=[1, -2, 0, 0, 0]), "column 'label': row 1 holds -2; use classes from 0, and -1 for none"),
    "a label far too large": (changed(label=[1, 2**40, 0, 0, 0]), "column 'label': entry 1 is 1099511627776; use classes from 0 to 65535"),
    "floats that may be classes": (changed(label=[1.0, 0, np.nan, 2, 1]), "column 'label': got float64 of whole numbers, which may be classes or numbers"),
    "an infinite label": (changed(label=[0.5, 0, np.inf, 2, 1]), "column 'label': row 2 holds inf; use finite numbers"),
    "a class without in a split": (changed(split=["train"] * 5), "row 2 is in split 'train' and has no label; use a label, or no split$"),
    "numbers without in a split": (changed(label=np.array([[1, 2], [0.5, 0], [1, np.nan], [np.nan, np.nan], [1, 1]])), "row 3 is in split 'train' and has no label"),
    "classes without in a mask": (changed(label=[0, 1, -1, -1, 0], split=None, val=[False, True, False, True, True]), "row 3 is in split 'val' and has no label"),
    "a split that is none": (changed(split=["train", "valid", "test", "val", None]), "column 'split': row 1 holds 'valid'; use train, val, test, or a missing value"),
    "a split of numbers": (changed(split=[0, 1, 2, 0, 0]), "column 'split': row 0 holds 0; use train, val, test"),
    "a split and a mask": (changed(val=[True] * 5), "has columns 'split', 'val'; use 'split' alone, or columns of booleans$"),
    "a mask of two names": (changed(split=None, val=[False] * 5, val_mask=[True] * 5), "has columns 'val' and 'val_mask', which are one split; use one of them$"),
    "a mask of numbers": (changed(split=None, train=[0, 1, 2, 0, 0]), "column 'train': row 2 holds 2; use booleans, or 0 and 1$"),
    "a mask of floats": (changed(split=None, train=[0.0, 1, 1, 0, 0]), "column 'train': row 0 holds 0.0; use booleans, or 0 and 1$"),
    "a mask of text": (changed(split=None, train_mask=["yes"] * 5), "column 'train_mask': row 0 holds 'yes'; use booleans, or 0 and 1$"),
    "a mask with a gap": (changed(split=None, train=[True, None, False, False, False]), "column 'train': row 1 holds nothing; use true or false in each row$"),
    "a row in two splits": (changed(split=None, test=[True] * 2 + [False] * 3, train_mask=[False, True, False, False, True]), "row 1 is in the splits 'test' and 'train'; use one of them$"),
    "a feature of text": (changed(feature_a=[None, "x", "y", "z", "z"]), "column 'feature_a': row 1 holds 'x'; use numbers$"),
    "a feature of dates": (changed(feature_a=DATES), "column 'feature_a': holds dates; use numbers$"),
    "a feature without": (changed(feature_a=[1, 2, None, 4, 5]), "column 'feature_a': row 2 holds nothing; use finite numbers$"),
    "a feature of NaN": (changed(feature_a=[1, 2, 3, np.nan, 5]), "column 'feature_a': row 3 holds nothing; use finite numbers$"),
    "an infinite feature": (changed(feature_a=[1, 2, 3, 4, -np.inf]), "column 'feature_a': row 4 holds -inf; use finite numbers$"),
    "a feature beyond float32": (changed(feature_a=[1, 1e300, 3, 4, 5]), r"column 'feature_a': row 1 holds 1e\+300; use finite numbers$"),
}  # fmt: skip
WIDE = {
    "features of one dimension": (np.ones(3), r"features: got float64 of shape \(3,\); use a matrix of 3 rows, one for each pair$"),
    "features of another length": (np.ones((4, 1)), r"features: got float64 of shape \(4, 1\); use a matrix of 3 rows"),
    "features of text": (np.full((3, 1), "a"), "features: got <U1 of shape .*; use numbers or booleans"),
    "features of NaN": (np.array([[1, 2], [3, 4], [np.nan, 1]]), "features: row 2 is not finite"),
    "features beyond float32": (np.array([[1.0], [1e300], [2]]), "features: row 1 is not finite"),
    "masked features": (np.ma.array([[1], [2], [3]], mask=[[0], [1], [0]]), "features: row 1 is not finite"),
    "no array": ("features", r"features: got <U8 of shape \(\)"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_wrong_tables_are_refused_by_column_and_row(case):
    table, names = DAMAGED[case]
    with pytest.raises(DataError, match=f"^pairs: {names}"):
        read_edge_table(table, "pairs")


@pytest.mark.parametrize("case", WIDE)
def test_wrong_matrices_are_refused(case):
    features, names = WIDE[case]
    with pytest.raises(DataError, match=f"^edge_labels: {names}"):
        read_edge_table({**ENDS, "label": [0, 1, 0], "features": features})


OF_FILES = ("a source without", "a source below 0", "half a destination", "labels of text", "times of dates", "a split that is none", "a mask of two names",
            "a row in two splits", "a feature without", "a feature beyond float32", "no source", "no rows", "a class without in a split", "no labels")  # fmt: skip


@pytest.mark.parametrize("case", OF_FILES)
@pytest.mark.parametrize("make", [written_csv, arrow_csv, parquet])
def test_wrong_files_are_refused_by_name_column_and_row(tmp_path, case, make):
    table, names = DAMAGED[case]
    with pytest.raises(DataError, match=f"(?i)^pairs.(csv|parquet): {names}"):
        read_edge_table(make(table, tmp_path))


def test_a_batch_of_arrow_is_no_table(tmp_path):
    with pytest.raises(UsageError, match=r"^edge_labels: got a RecordBatch; use a pandas"):
        read_edge_table(arrow({**ENDS, "label": [True, False, True]}, tmp_path).to_batches()[0])


def test_features_of_a_table_are_columns(tmp_path):
    given = {**ENDS, "label": [0, 1, 0], "features": [[1.0, 2], [3, 4], [5, 6]]}
    for table in (arrow(given, tmp_path), frame(given), parquet(given, tmp_path)):
        with pytest.raises(
            DataError,
            match=r": column 'features' is one column; use a dict or \.npz file with a matrix, or columns feature_0, feature_1, …$",
        ):
            read_edge_table(table)


def test_two_columns_of_one_name_are_refused(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "p.csv").write_text("source,destination,source,label\n1,2,3,0\n")
    with pytest.raises(DataError, match=r"^p\.csv: two columns are named 'source'; use one"):
        read_edge_table(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_text("source,destination,x,x,label\n1,2,3,0,4\n")  # these are ignored
    assert read_edge_table(tmp_path / "p.csv").labels.tolist() == [4]


MISTAKEN = {
    "an unknown label": ({"label": "fraudd"}, r"^label: edge_labels: there is no column 'fraudd'; did you mean 'fraud'\? The columns are source, destination, label, fraud$"),
    "a number as label": ({"label": 3}, "^label: got 3; use the name of a column of labels"),
    "a label that is something else": ({"label": "train_mask"}, "^label: got 'train_mask'; use .* none of source, destination, time, split, train, "),
    "an unknown target": ({"target": "classes"}, "^target: there is no target 'classes'; did you mean 'class'"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKEN)
def test_wrong_options_are_refused(case):
    options, names = MISTAKEN[case]
    with pytest.raises(UsageError, match=names):
        read_edge_table({**ENDS, "label": [0, 1, 0], "fraud": [1, 0, 1]}, **options)


@pytest.mark.parametrize("table", [None, 3, [1, 2], np.zeros((3, 3)), {1, 2}])
def test_what_is_no_table_is_refused(table):
    with pytest.raises(
        UsageError,
        match=r"^edge_labels: got a \w+; use a pandas\.DataFrame, a pyarrow\.Table, a dict of arrays, or the path .* \.npz, \.csv, \.parquet, \.pq$",
    ):
        read_edge_table(table)


@pytest.mark.parametrize("path", ["pairs.txt", "pairs", "pairs.csv.gz", "pairs.npy", "."])
def test_other_endings_are_refused(path):
    with pytest.raises(
        UsageError, match=rf"^{re.escape(path)}: is no table by its ending; use a file that ends in \.npz, \.csv, \.parquet, \.pq$"
    ):
        read_edge_table(path)


@pytest.mark.parametrize("ending", [".npz", ".csv", ".parquet", ".pq"])
def test_places_without_a_file_are_refused(tmp_path, ending):
    pytest.importorskip("pyarrow")
    place = tmp_path / f"p{ending}"
    with pytest.raises(DataError, match=rf"^p\{ending}: cannot be read: No such file"):
        read_edge_table(place)
    place.mkdir()
    with pytest.raises(DataError, match=rf"^p\{ending}: is not a regular file"):
        read_edge_table(place)
    place.rmdir()
    os.mkfifo(place)
    with pytest.raises(DataError, match=rf"^p\{ending}: is not a regular file"):
        read_edge_table(place)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("p.csv", b"", "is no CSV file that can be read: Empty CSV file"),
        ("p.csv", b"source,destination,label\n1,2\n", "is no CSV file that can be read: .*Expected 3 columns, got 2"),
        ("p.csv", b"source,destination,label,\xff\xfe\n1,2,0,1\n", "is no CSV file that can be read: .*utf-8"),
        ("p.csv", b"source,destination,split,label\n1,2,\xff,0\n", "column 'split': row 0 holds b'.xff'; use train"),
        ("p.csv", b"source;destination;label\n1;2;0\n", "there is no column 'source'; .*source;destination;label"),
        ("p.csv", b"source,destination,label\n18446744073709551617,2,0\n", "column 'source': row 0 holds 1.8446744073709552e"),
        ("p.parquet", b"PAR1", "is no Parquet file that can be read"),
        ("p.pq", b"source,destination\n", "is no Parquet file that can be read"),
        ("p.npz", b"source,destination\n", "not an .npz archive"),
        ("p.npz", b"", "not an .npz archive"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, content, says):
    pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"^{re.escape(name)}: {says}"):
        read_edge_table(tmp_path / name)


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "p.npz", **ENDS, label=np.array([Bomb(), 1, 2], object))
    with pytest.raises(DataError, match=r"^p\.npz: label: holds '\|O'; use numbers, booleans or text: pickled objects are never read"):
        read_edge_table(tmp_path / "p.npz")
    np.savez(tmp_path / "p.npz", **ENDS, label=np.arange(3), note=np.array([Bomb(), 1, 2], object))
    assert len(read_edge_table(tmp_path / "p.npz")) == 3  # it is ignored
    assert not UNPICKLED.exists()
    np.savez(tmp_path / "p.npz", **ENDS, label=np.arange(3), time=np.zeros(3, "datetime64[s]"))
    with pytest.raises(DataError, match=r"^p\.npz: time: holds '<M8\[s\]'; use numbers"):
        read_edge_table(tmp_path / "p.npz")


@sweep(("turn", "rounds"), [(0, 40), *((turn, 300) for turn in range(1, 5))])
def test_random_damage_is_refused_or_leaves_a_table(tmp_path, turn, rounds):
    rng = np.random.default_rng(turn)
    for path in (npz(TABLE, tmp_path), arrow_csv(TABLE, tmp_path)):
        whole = open(path, "rb").read()  # noqa: SIM115
        for _ in range(rounds):
            with open(path, "wb") as file:
                file.write(mutated(whole, rng))
            try:
                table = read_edge_table(path)
            except DataError as error:
                assert str(error)  # noqa: PT017
            else:
                assert min(table.sources.min(), table.destinations.min()) >= 0
                assert np.isfinite(table.features).all() if table.features is not None else True


@pytest.mark.parametrize(("name", "kind"), [("p.csv", "CSV"), ("p.parquet", "Parquet")])
def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch, name, kind):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=rf"^{re.escape(name)}: reading {kind} needs pyarrow; pip install 'bulksample\[tables\]'"):
        read_edge_table(tmp_path / name)
    assert len(read_edge_table({**ENDS, "label": [0, 1, 2]})) == 3

"""Data sets of OGB by name: found, downloaded from a server of our own, refused; and equal to what `ogb` itself makes of them."""

import http.server
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from typing import ClassVar

import numpy as np
import pytest
from test_ogb import write_binary, write_csv
from waiting import PATIENCE

from bulksample import DataError, UsageError
from bulksample.data import atomic, ogb, store
from bulksample.data.ogb_sets import SETS, locate
from bulksample.evaluation.metrics import score

WRITERS = {"ogbn-arxiv": (write_csv, "time"), "ogbn-products": (write_csv, "sales_ranking"), "ogbn-papers100M": (write_binary, None)}


def written(name, root):
    """A tiny set in the folder and the layout that `ogb` expects of this name."""
    write, scheme = WRITERS[name]
    folder = write(root / name.replace("-", "_"), **({"scheme": scheme} if scheme else {}))
    (folder / "processed").mkdir()
    (folder / "RELEASE_v1.txt").write_text("# Release note\n")
    return folder


class Server(http.server.BaseHTTPRequestHandler):
    """Serves files, from where a Range header says, and breaks off where it is asked to."""

    files: ClassVar[dict[str, bytes]] = {}
    stop_after = None
    asked: ClassVar[list[str]] = []

    def do_GET(self):
        body = self.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        self.asked.append(f"{self.path} from {start}")
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : self.stop_after])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    Server.files, Server.stop_after, Server.asked = {}, None, []
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    httpd.server_close()


def zipped(folder, top):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.rglob("*")):
            packed.write(file, f"{top}/{file.relative_to(folder)}")
    return stream.getvalue()


@pytest.mark.parametrize("folder", ["ogbn_arxiv", "ogbn-arxiv", "arxiv"])
def test_a_set_is_found_under_its_names(tmp_path, folder):
    write_csv(tmp_path / folder)
    assert locate("ogbn-arxiv", tmp_path, download=False) == tmp_path / folder


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_not_there_is_downloaded_and_unpacked(server, tmp_path, name):
    archive = SETS[name].archive
    Server.files[f"/{archive}.zip"] = zipped(written(name, tmp_path / "there"), archive)
    folder = locate(name, tmp_path / "here", base=server)
    assert folder == tmp_path / "here" / name.replace("-", "_")
    assert [entry.name for entry in (tmp_path / "here").iterdir()] == [folder.name], "neither the archive nor a scratch folder stays"
    np.testing.assert_array_equal(ogb.read(folder).features, ogb.read(tmp_path / "there" / folder.name).features)
    assert locate(name, tmp_path / "here", base=server) == folder
    assert len(Server.asked) == 1, "what is there is not asked for again"


def test_what_is_unpacked_is_synced_before_it_gets_its_name(server, tmp_path, monkeypatch):
    Server.files["/arxiv.zip"] = zipped(written("ogbn-arxiv", tmp_path / "there"), "arxiv")
    synced, sync, rename = set(), os.fsync, os.rename

    def noted(number):
        synced.add(os.fstat(number).st_ino)
        sync(number)

    def renamed(made, target):
        missing = [path for path in made.rglob("*") if path.stat().st_ino not in synced]
        assert missing == []
        rename(made, target)

    monkeypatch.setattr(os, "fsync", noted)
    with monkeypatch.context() as at_the_end:
        at_the_end.setattr(atomic, "_move", renamed)
        folder = locate("ogbn-arxiv", tmp_path / "here", base=server)
    assert len(list(folder.rglob("*.gz"))) > 3


def test_a_download_that_breaks_off_goes_on_from_there(server, tmp_path):
    whole = zipped(written("ogbn-arxiv", tmp_path / "there"), "arxiv")
    Server.files["/arxiv.zip"], Server.stop_after = whole, 500
    with pytest.raises(UsageError, match=r"ogbn-arxiv is not in .* and could not be downloaded"):
        locate("ogbn-arxiv", tmp_path / "here", base=server)
    Server.stop_after = None
    folder = locate("ogbn-arxiv", tmp_path / "here", base=server)
    assert Server.asked == ["/arxiv.zip from 0", "/arxiv.zip from 500"]
    assert ogb.read(folder).n == 6


@pytest.mark.parametrize(("body", "said"), [(b"no zip", "is damaged and was removed"), (None, "holds no folder arxiv/raw")])
def test_a_damaged_archive_is_refused_and_got_again(server, tmp_path, body, said):
    Server.files["/arxiv.zip"] = body or zipped(written("ogbn-arxiv", tmp_path / "there"), "elsewhere")
    with pytest.raises(DataError, match=said):
        locate("ogbn-arxiv", tmp_path / "here", base=server)
    assert not (tmp_path / "here" / "ogbn_arxiv").exists()


def test_without_a_network_there_is_one_message(tmp_path):
    with pytest.raises(UsageError, match=r"ogbn-arxiv is not in .* could not be downloaded: .*; use http.*/arxiv.zip unpacked in .*"):
        locate("ogbn-arxiv", tmp_path, base="http://127.0.0.1:9")
    with pytest.raises(UsageError, match="none of ogbn_arxiv, ogbn-arxiv, arxiv has a folder raw"):
        locate("ogbn-arxiv", tmp_path, download=False)


def test_a_batch_job_is_never_asked_anything(tmp_path):
    """Standard input stays open and silent, as a terminal nobody sits at."""
    import_ = [sys.executable, "-m", "bulksample", "data", "import", "ogb", "ogbn-papers100M", "--root", str(tmp_path), "--no-download"]
    process = subprocess.Popen([*import_, "-o", str(tmp_path / "o")], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.wait(timeout=PATIENCE) == 2
    assert "ogbn-papers100M is not in" in process.stderr.read()
    process.stdin.close()


@pytest.mark.parametrize("name", WRITERS)
def test_an_import_by_name_is_what_ogb_makes_of_the_set(tmp_path, name):
    """Edges, features, labels and splits as `ogb.nodeproppred.NodePropPredDataset` has them, from the same files."""
    theirs = pytest.importorskip("ogb.nodeproppred", reason="the ogb extra is not installed")
    written(name, tmp_path)
    line = [sys.executable, "-m", "bulksample", "data", "import", "ogb", name, "--root", str(tmp_path), "--no-download"]
    done = subprocess.run([*line, "-o", str(tmp_path / "o"), "--json", "-"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["vertices"] == 6
    ours = store.load(tmp_path / "o")
    data = theirs.NodePropPredDataset(name, root=str(tmp_path))
    graph, labels = data[0]
    edges = set(zip(*graph["edge_index"].tolist(), strict=True))
    assert edges == {(u, v) for v, u in zip(ours.adjacency.row_of_entry().tolist(), ours.adjacency.indices.tolist(), strict=True)}
    np.testing.assert_array_equal(graph["node_feat"], ours.features)
    np.testing.assert_array_equal(np.nan_to_num(labels[:, 0], nan=-1), ours.labels)
    for split, members in data.get_idx_split().items():
        np.testing.assert_array_equal(np.sort(members), ours.seeds({"valid": "val"}.get(split, split)))
    if name != "ogbn-products":
        np.testing.assert_array_equal(graph["node_year"][:, 0], ours.extra["node_year"])


def test_scores_are_those_of_its_evaluators():
    theirs = pytest.importorskip("ogb.nodeproppred", reason="the ogb extra is not installed")
    draw = np.random.default_rng(5)
    for _ in range(20):
        truth, predicted = draw.integers(0, 7, 200), draw.integers(0, 7, 200)
        for name in ("ogbn-arxiv", "ogbn-products", "ogbn-papers100M"):
            value = theirs.Evaluator(name).eval({"y_true": truth[:, None], "y_pred": predicted[:, None]})["acc"]
            assert score("accuracy", truth, predicted, predicted) == pytest.approx(value, abs=1e-15)
        margin = np.round(draw.normal(size=200), 1)  # with ties
        binary = np.tile((truth > 3).astype(int)[:, None], 112)
        value = theirs.Evaluator("ogbn-proteins").eval({"y_true": binary, "y_pred": np.tile(margin[:, None], 112)})["rocauc"]
        assert score("rocauc", binary[:, 0], (margin > 0).astype(int), margin) == pytest.approx(value, abs=1e-12)


def test_the_table_is_that_of_ogb():
    pytest.importorskip("ogb.nodeproppred", reason="the ogb extra is not installed")
    import csv
    from importlib.resources import files

    rows = {row[0]: row[1:] for row in csv.reader((files("ogb.nodeproppred") / "master.csv").read_text().splitlines())}
    for at, name in enumerate(rows[""]):
        if rows["is hetero"][at] == "True":
            continue
        assert SETS[name].archive == rows["download_name"][at]
        assert str(SETS[name].adds_inverse) == rows["add_inverse_edge"][at]
        assert rows["url"][at].endswith(f"/nodeproppred/{SETS[name].archive}.zip")

"""Ranks that open a folder of parts: each its own part, the mini-batches of the whole store, and a sentence for what does not fit."""

import shutil

import numpy as np
import pytest
from communities import community_graph

from bulksample import DataError, UsageError, backends
from bulksample.data import store, store_files
from bulksample.data.parts_manifest import load_parts
from bulksample.data.parts_writer import write_parts
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.open_graph import open_block, open_for_sampling
from bulksample.distributed.matrix.partition import Partition, random
from bulksample.distributed.matrix.placement import Placement
from bulksample.distributed.matrix.rank_graph import open_rank_graph
from bulksample.distributed.matrix.verify import verify_together
from bulksample.loading.loader import BulkLoader
from bulksample.samplers import make

ASSIGNMENT = np.random.default_rng(3).integers(0, 4, 90).astype(np.int32)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("graphs")
    store.save(community_graph(n=90), place / "g")
    write_parts(place / "g", place / "P", ASSIGNMENT, 4, "random")
    Partition(4, ASSIGNMENT).save(place / "four.npz")
    return place


@pytest.mark.parametrize(("ranks", "c"), [(1, 1), (2, 1), (4, 1), (8, 2)])
@pytest.mark.parametrize("name", ["sage", "ladies"])
def test_mini_batches_of_parts_are_those_of_the_store(place, name, ranks, c):
    sampler, batches = make(name, [4, 3]), {}
    whole = store.load(place / "g")
    for batch in BulkLoader(_local(whole), sampler, whole.seeds("train"), batch_size=8, seed=5, prefetch=False):
        batches[batch.id] = batch.digest()

    def rank(comm):
        opened = open_for_sampling(place / "P", None, comm, backends.make("reference"), Placement("partitioned", c))
        loader = BulkLoader(
            opened.adjacency, sampler, opened.seeds, batch_size=8, seed=5, rank=comm.rank, ranks=comm.size, prefetch=False, bulk_size=2
        )
        return {batch.id: batch.digest() for batch in loader if batch is not None}

    found = on_threads(ranks, rank)
    assert {key: digest for own in found for key, digest in own.items()} == batches


def _local(graph):
    from bulksample.local_adjacency import LocalAdjacency

    return LocalAdjacency(graph.adjacency, backends.make("reference"))


def test_the_layout_is_that_of_the_file_of_the_partition(place):
    def rank(comm):
        file = open_block(place / "g", Placement("partitioned", partition=str(place / "four.npz")), comm)
        folder = open_block(place / "g", Placement("partitioned", partition=str(place / "P")), comm)
        own = open_block(place / "P", Placement("partitioned"), comm)
        assert (own.block.vertices == folder.block.vertices).all()
        assert (own.layout.bounds == file.layout.bounds).all()
        assert (own.layout.places(np.arange(90)) == file.layout.places(np.arange(90))).all()
        assert (own.block.features == file.block.features).all()

    on_threads(4, rank)


def test_a_random_partition_is_that_of_seed_0_unless_another_is_given(place):
    def rank(comm):
        for seed, options in ((0, {}), (5, {"seed": 5})):
            layout = open_rank_graph(place / "g", comm, partition="random", **options).layout
            assert layout.members(comm.rank).tolist() == np.flatnonzero(random(90, 2, seed).assignment == comm.rank).tolist()

    on_threads(2, rank)


def test_a_rank_reads_its_part_and_nothing_of_the_others(place, tmp_path, monkeypatch):
    """Each rank has a folder of its own, as on a machine that was sent one part; other parts do not exist there."""
    parts = load_parts(place / "P")
    for rank in range(4):
        shutil.copytree(place / "P", tmp_path / str(rank))
        for other in {0, 1, 2, 3} - {rank}:
            shutil.rmtree(tmp_path / str(rank) / parts.parts[other].folder)
    opened, real = [], store_files.open_npy
    monkeypatch.setattr(store_files, "open_npy", lambda path, what: opened.append(path) or real(path, what))

    def rank(comm):
        folder = tmp_path / str(comm.rank)
        verify_together(folder, comm, "full")
        own = open_block(folder, Placement("partitioned"), comm)
        assert (own.labels("test") == store.load(place / "g").labels[own.seeds("test")]).all()
        part = parts.parts[comm.rank]
        row = 2 * 4 + 8 + 8 * 4 + 8 + 3  # two ids, a row pointer, eight features, a label, three masks
        assert own.block.read_bytes == row * part.vertices + 4 * part.entries < 1.1 * part.bytes

    on_threads(4, rank)
    assert {path.parent.name for path in opened if path.parts[-3] != "g" and path.parent.name != "g"} == {
        *map(str, range(4)), *(part.folder for part in parts.parts)
    }  # fmt: skip


def test_what_does_not_fit_is_said_on_every_rank(place, tmp_path):
    write_parts(place / "g", tmp_path / "Q", (np.arange(90) % 4).astype(np.int32), 4, "block")
    store.save(community_graph(n=90, seed=1), tmp_path / "other")

    def rank(comm):
        with pytest.raises(UsageError, match=r"P has 4 parts, which p / c = 3 block rows cannot share evenly; use p / c in \{1, 2, 4\}"):
            open_block(place / "P", Placement("partitioned"), comm)
        with pytest.raises(UsageError, match="P is divided into parts already; got partition random: leave it out"):
            open_block(place / "P", Placement("partitioned", partition="random"), comm)
        with pytest.raises(UsageError, match=r"holds parts of another graph than .*other"):
            open_block(tmp_path / "other", Placement("partitioned", partition=str(place / "P")), comm)

    def mixed(comm):
        with pytest.raises(UsageError, match=r"the ranks do not agree on parts: another on rank 1 than on rank 0"):
            open_block((place / "P", tmp_path / "Q")[comm.rank], Placement("partitioned"), comm)
        with pytest.raises(UsageError, match="folders of 0 and of 4 parts"):
            verify_together((place / "P", place / "g")[comm.rank], comm, "auto")

    on_threads(3, rank)
    on_threads(2, mixed)


def test_damage_of_one_part_is_told_to_every_rank(place, tmp_path):
    shutil.copytree(place / "P", tmp_path / "P")
    path = tmp_path / "P/part-00001/features.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))

    def rank(comm):
        with pytest.raises(DataError, match=r"part-00001/features.npy: is damaged"):
            verify_together(tmp_path / "P", comm)

    on_threads(4, rank)


@pytest.mark.parametrize("topology", ["replicated", "partitioned"])
@pytest.mark.parametrize("features", ["replicated", "partitioned"])
def test_every_placement_takes_parts(place, topology, features):
    whole = store.load(place / "g")

    def rank(comm):
        graph = open_rank_graph(place / "P", comm, topology=topology, features=features)
        rows = np.arange(90) if graph.layout is None else graph.layout.members(comm.rank)
        assert (np.asarray(graph.features) == np.asarray(whole.features)[rows]).all()
        assert graph.fingerprint == open_rank_graph(place / "g", comm).fingerprint
        assert (graph.default_seeds() == whole.default_seeds()).all()

    on_threads(4, rank)


def test_a_folder_named_as_a_partitioner_is_not_taken_for_it(place, monkeypatch):
    monkeypatch.chdir(place)
    for by in ("block", "random"):
        write_parts(place / "g", place / by, (np.arange(90) % 3).astype(np.int32), 3, "block")

    def rank(comm):
        return [open_block(place / "g", Placement("partitioned", partition=by), comm).block.vertices for by in ("block", "./block")]

    for number, (named, folder) in enumerate(on_threads(3, rank)):
        assert (named == np.arange(30) + 30 * number).all()
        assert (folder == np.arange(number, 90, 3)).all()
    sizes = on_threads(2, lambda comm: [len(open_block(place / "g", Placement("partitioned", partition="random"), comm).block.vertices)])
    assert sum(size for (size,) in sizes) == 90

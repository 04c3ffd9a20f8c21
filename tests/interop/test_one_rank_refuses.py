"""A refusal of one rank alone ends every rank soon, in words that name it: each public call that ranks make together."""

import atexit
import importlib.machinery
import itertools
import json
import shutil
import sys
import tempfile
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from launch import run_ranks
from pyg_graphs import make_data
from pyg_typed import typed_data

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads
from bulksample.interop.dgl import DataLoader, NeighborSampler
from bulksample.interop.pyg import (
    BulkSampler,
    ClusterData,
    ClusterLoader,
    FastGCNLoader,
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    HGTLoader,
    HGTSampler,
    LaborLoader,
    LadiesLoader,
    LinkNeighborLoader,
    NeighborLoader,
    ShaDowKHopSampler,
)
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

DATA, TYPED = make_data(), typed_data()
LINKS = torch.tensor([[0, 1], [1, 2]])


def dgl_graph():
    """Return the part of a DGLGraph that its loader reads when it is made."""
    return SimpleNamespace(
        is_homogeneous=True, ndata={}, edata={}, edges=lambda order: tuple(DATA.edge_index), num_nodes=lambda: DATA.num_nodes
    )


def without_dgl():
    """DGL need not be there: nothing of it is called before the first blocks are made."""
    module = SimpleNamespace(__spec__=importlib.machinery.ModuleSpec("dgl", None))
    sys.modules.setdefault("dgl", module)


def graph():
    rng = np.random.default_rng(0)
    return bs.from_edges(
        *rng.integers(0, 60, (2, 300)), num_nodes=60, x=rng.normal(size=(60, 4)).astype(np.float32), y=rng.integers(0, 3, 60),
        train_mask=np.arange(60) < 30, val_mask=np.arange(60) >= 45, test_mask=(np.arange(60) >= 30) & (np.arange(60) < 45),
    )  # fmt: skip


def hetero():
    a, b = bs.VertexType("a", 6, features=np.eye(6, dtype=np.float32)), bs.VertexType("b", 4)
    return bs.Graph.of((a, b), (bs.relation_from_edges(a, "to", b, [0, 1, 2], [0, 1, 3]),), "typed")


class Folder:
    """Two stores, which rank 0 writes."""

    def __init__(self, comm):
        path = comm.gather_control(tempfile.mkdtemp(prefix="bulksample-refuses-") if comm.rank == 0 else None)[0]
        self.plain, self.typed = f"{path}/plain", f"{path}/typed"
        if comm.rank == 0:
            atexit.register(shutil.rmtree, path, ignore_errors=True)
            graph().save(self.plain)
            hetero().save(self.typed)
        comm.barrier()

    def opened(self, comm, path=None, **options):
        return bs.load(path or self.plain, world=comm, check="none", **options)


class Failing(list):
    """An order of the user's that fails, with an error of its own, when it is run through."""

    def __iter__(self):
        raise RuntimeError("a file of mine is gone")


class Speechless(Exception):
    def __str__(self):
        raise ValueError("no words")


class Muted(list):
    def __iter__(self):
        raise Speechless


def own_order(comm, folder, fails=False):
    return next(iter(NeighborLoader(DATA, [2], batch_size=32, sampler=Failing(range(99)) if fails else range(99), comm=comm)))


def changed_order(comm, folder, other=False):
    """Load the state of another order on one rank alone."""
    loader, again = (NeighborLoader(DATA, [2], batch_size=32, sampler=range(99), comm=comm) for _ in range(2))
    state = next(loader.state_dict() for _ in loader)
    again.load_state_dict(state | ({"order": "of another"} if other else {}))
    return next(iter(again))


def fetching(comm, folder, **options):
    return bs.Loader(folder.opened(comm), fanouts=[2], batch_size=8, **options)


def typed_loader(comm, folder, **options):
    return bs.Loader(folder.opened(comm, folder.typed), fanouts=[2], batch_size=2, **{"seeds": "b", **options})


def trained(comm, folder, path=None, **options):
    asked = {"fanouts": [2], "layers": 1, "hidden": 4, "epochs": 1, "batch_size": 8, "threads": 1, "device": "cpu"} | options
    return bs.train(path or folder.plain, comm=comm, **asked)["epochs"]


def compute(comm, folder, fails=False):
    """Train a method that does not take the module of one rank."""
    module = torch.nn.Linear(4, 3) if fails else None
    config = TrainConfig.of(method="retexo", fanouts=[2], layers=1, epochs=1, batch_size=8, threads=1, device="cpu")
    return make_trainer(config, folder.plain, comm, module=module)


def sampler_by_place(comm, folder, size=8):
    """Give a loader its sampler without the name of the argument, as torch_geometric allows."""
    sampler = BulkSampler(DATA, [2], comm=comm)
    others = [None, None, False, "directional", False, "uniform", *[None] * 4, False, None]
    return NeighborLoader(DATA, [2], *others, sampler, batch_size=size)


def without_words(comm, folder, fails=False):
    return next(iter(NeighborLoader(DATA, [2], batch_size=32, sampler=Muted(range(99)) if fails else range(99), comm=comm)))


ENTRIES = {  # a call, what is refused on one rank, and a part of the words
    "NeighborLoader": (lambda comm, _, **own: NeighborLoader(DATA, [2], comm=comm, **own), {"batch_size": None}, "batch_size was None"),
    "NeighborLoader, a mistyped option": (lambda comm, _, **own: NeighborLoader(DATA, [2], comm=comm, **own), {"shufle": True}, "shufle"),
    "NeighborLoader, seeds": (
        lambda comm, _, **own: NeighborLoader(DATA, [2], comm=comm, **own), {"input_nodes": torch.tensor([1, 999])}, "999"
    ),
    "NeighborLoader, a grid": (lambda comm, _, **own: NeighborLoader(DATA, [2], comm=comm, grid=1, **own), {"backend": "none"}, "'none'"),
    "NeighborLoader, types": (
        lambda comm, _, **own: NeighborLoader(TYPED, [2], **{"input_nodes": "paper", "comm": comm, **own}), {"input_nodes": "no"}, "no"
    ),
    "LaborLoader": (lambda comm, _, **own: LaborLoader(DATA, [2], comm=comm, **own), {"importance": True}, "importance"),
    "LadiesLoader": (lambda comm, _, fanouts=(2,): LadiesLoader(DATA, list(fanouts), comm=comm), {"fanouts": (-7,)}, "-7"),
    "FastGCNLoader": (lambda comm, _, **own: FastGCNLoader(DATA, [2], comm=comm, **own), {"weight_attr": "none"}, "no weight 'none'"),
    "LinkNeighborLoader": (
        lambda comm, _, **own: LinkNeighborLoader(DATA, [2], edge_label_index=LINKS, comm=comm, **own), {"time_attr": "t"}, "time_attr"
    ),
    "HGTLoader": (lambda comm, _, seeds="paper": HGTLoader(TYPED, [2], seeds, comm=comm), {"seeds": "no"}, "no"),
    "ClusterLoader": (
        lambda comm, _, parts=True: ClusterLoader(ClusterData(DATA, 4) if parts else DATA, comm=comm), {"parts": False}, "in parts"
    ),
    "ShaDowKHopSampler": (lambda comm, _, depth=2: ShaDowKHopSampler(DATA, depth, 2, comm=comm), {"depth": 0}, "depth"),
    "GraphSAINTRandomWalkSampler": (
        lambda comm, _, length=2: GraphSAINTRandomWalkSampler(DATA, 4, length, comm=comm), {"length": -1}, "walk_length"
    ),
    "GraphSAINTNodeSampler": (lambda comm, _, size=4: GraphSAINTNodeSampler(DATA, size, comm=comm), {"size": 0}, "batch_size"),
    "GraphSAINTEdgeSampler": (lambda comm, _, steps=4: GraphSAINTEdgeSampler(DATA, 4, steps, comm=comm), {"steps": 0}, "num_steps"),
    "BulkSampler": (lambda comm, _, **own: BulkSampler(DATA, [2], comm=comm, **own), {"sampler": "none"}, "sampler must be one of"),
    "BulkSampler, a fault": (lambda comm, _, data=DATA: BulkSampler(data, [2], comm=comm), {"data": object()}, "got a"),
    "BulkSampler in time": (lambda comm, _, **own: BulkSampler(TYPED, [2], comm=comm, **own), {"time_attr": "none"}, "none"),
    "HGTSampler": (lambda comm, _, data=TYPED: HGTSampler(data, [2], comm=comm), {"data": DATA}, "without types"),
    "dgl.DataLoader": (
        lambda comm, _, ids=(0, 1): DataLoader(dgl_graph(), torch.tensor(ids), NeighborSampler([2]), comm=comm), {"ids": (0, 0)}, "indices"
    ),
    "an order that fails": (own_order, {"fails": True}, "a file of mine is gone"),
    "NeighborLoader, a sampler by its place": (sampler_by_place, {"size": None}, "batch_size was None"),
    "an order that changed": (changed_order, {"other": True}, "the order of your sampler is not the one of the loader's state"),
    "load, a mistyped option": (lambda comm, folder, **own: folder.opened(comm, **own), {"replicaton": 1}, "replication"),
    "load, a path": (lambda comm, folder, **own: folder.opened(comm, **own), {"path": "/none"}, "/none"),
    "Loader": (fetching, {"fetch_together": 0}, "fetch_together"),
    "Loader, a switch": (fetching, {"edge_ids": "yes"}, "edge_ids"),
    "Loader, seeds": (fetching, {"seeds": [999]}, "999"),
    "Loader by type": (typed_loader, {"seeds": "no"}, "no"),
    "train, an option": (trained, {"epocs": 1}, "epocs"),
    "train, a value": (trained, {"lr": "fast"}, "lr"),
    "train, a path": (trained, {"path": "/none"}, "/none"),
    "Trainer": (compute, {"fails": True}, "retexo"),
}  # fmt: skip


def said_by(comm, folder, name, odd):
    """Return what this rank hears if rank 1 alone is given what is odd, or None."""
    act, bad, _ = ENTRIES[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            act(comm, folder, **(bad if odd and comm.rank == 1 else {}))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def program():
    """Make every call on each of two ranks, with what one of them refuses and then without."""
    without_dgl()
    comm = bs.init(timeout=1000)
    folder = Folder(comm)
    for name, odd in itertools.product(ENTRIES, (True, False)):
        print("\n" + json.dumps([comm.rank, name, odd, said_by(comm, folder, name, odd)]) + "\n", end="", flush=True)


@pytest.fixture(scope="module")
def said():
    """Return the words that each of two processes heard, by rank, call, and whether rank 1 was given what it refuses."""
    ended = run_ranks(2, "import test_one_rank_refuses as own; own.program()")
    assert ended.code == 0, ended
    lines = [json.loads(line) for line in ended.out.splitlines() if line.startswith("[")]
    return {(rank, name, odd): words for rank, name, odd, words in lines}


def test_a_sampler_by_its_place_is_compared():
    def body(comm):
        with pytest.raises(bs.UsageError, match="do not agree on batch_size: 8 on rank 0, 16 on rank 1"):
            sampler_by_place(comm, None, 8 * (comm.rank + 1))

    on_threads(2, body)


def test_an_error_without_a_text_ends_every_rank():
    def body(comm):
        try:
            without_words(comm, None, fails=comm.rank == 1)
        except Speechless:
            return "no words"
        except bs.UsageError as error:
            return str(error)
        return "no error"

    assert on_threads(2, body) == ["rank 1: Speechless: its text cannot be made, ValueError", "no words"]


@pytest.mark.long
@pytest.mark.parametrize("name", ENTRIES)
def test_what_one_rank_refuses_is_told_on_all(said, name):
    expected = ENTRIES[name][2]
    first, second = (said[rank, name, True] for rank in range(2))
    assert "rank 1: " in first, first
    assert expected in first, first
    assert expected in second, second
    assert [said[rank, name, False] for rank in range(2)] == [None, None]


INIT = """
import bulksample as bs
try:
    bs.init({options})
except bs.UsageError as error:
    print("\\n" + str(error) + "\\n", end="", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize(("options", "words"), [("process_group='glo'", "did you mean 'gloo'"), ("timeout=-1", "timeout: got -1")])
def test_init_tells_every_rank_what_one_refuses(options, words):
    ended = run_ranks(2, INIT.format(options=f"**(dict({options}) if __import__('os').environ['PMI_RANK'] == '1' else {{}})"))
    assert ended.code == 0, ended
    assert [words in line for line in ended.out.splitlines() if line.startswith("rank 1: ")] == [True, True], ended


def test_ranks_compare_when_a_loader_is_made_and_when_an_epoch_begins():
    """Batches cost no exchange; options, and what was refused, are compared in one, after the seed of rank 0 is known."""

    def body(comm):
        counts = []
        gather = comm.__class__.gather_control

        class Counted(comm.__class__):
            def gather_control(self, thing):
                counts.append(self)
                return gather(self, thing)

            def split(self, color, key):
                made = super().split(color, key)
                made.__class__ = Counted
                return made

        comm.__class__ = Counted
        loader = NeighborLoader(DATA, [2], batch_size=8, comm=comm)
        made = len(counts)
        batches = len(list(loader))
        return made, len(counts) - made, batches

    found = on_threads(2, body)
    assert len(set(found)) == 1
    made, begun, batches = found[0]
    assert (made, begun) == (3, 1)  # the seed; the options; a communicator of its own; the beginning of the epoch
    assert batches > 10


def test_loaders_of_one_comm_iterate_on_threads_in_any_order():
    """Two threads of a rank begin epochs of two loaders; ranks begin them in another order."""

    def body(comm):
        loaders = [NeighborLoader(DATA, [2], batch_size=32, seed=seed, comm=comm, sampler=range(seed, 99)) for seed in (1, 2)]
        found, begun = [None, None], [threading.Event(), threading.Event()]

        def iterate(number, after):
            begun[after].wait(0.2 if after != number else 0)
            begun[number].set()
            found[number] = [batch.n_id.tolist() for batch in loaders[number]]

        order = (0, 1) if comm.rank == 0 else (1, 0)
        threads = [threading.Thread(target=iterate, args=(number, order[0])) for number in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    alone = [[batch.n_id.tolist() for batch in NeighborLoader(DATA, [2], batch_size=32, seed=s, sampler=range(s, 99))] for s in (1, 2)]
    by_rank = on_threads(2, body)
    for number in range(2):
        assert [by_rank[t % 2][number][t // 2] for t in range(len(alone[number]))] == alone[number]

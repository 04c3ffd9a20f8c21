"""Drop-in loaders that were given no seed: torch's seed counts, without a random number of torch's; 0 where nobody has set it."""

import json
import multiprocessing

import pytest

pytest.importorskip("torch_geometric", reason="torch_geometric is missing: pip install 'bulksample[pyg]'")

import torch
from launch import run_alone, run_ranks
from pyg_graphs import make_data
from pyg_typed import typed_data
from torch.utils.data import DataLoader, IterableDataset
from waiting import PATIENCE

import bulksample as bs
from bulksample.interop import pyg

DATA, TYPED, PARTS = make_data(), typed_data(), pyg.ClusterData(make_data(), 20)
MADE = {
    "neighbors": lambda **options: pyg.NeighborLoader(DATA, [3, 2], batch_size=32, shuffle=True, **options),
    "typed": lambda **options: pyg.NeighborLoader(TYPED, [3, 2], "paper", batch_size=8, shuffle=True, **options),
    "hgt": lambda **options: pyg.HGTLoader(TYPED, [9, 9], "paper", batch_size=8, shuffle=True, **options),
    "labor": lambda **options: pyg.LaborLoader(DATA, [3, 2], batch_size=32, shuffle=True, **options),
    "ladies": lambda **options: pyg.LadiesLoader(DATA, [9, 9], batch_size=32, shuffle=True, **options),
    "links": lambda **options: pyg.LinkNeighborLoader(DATA, [2], batch_size=300, shuffle=True, neg_sampling="binary", **options),
    "shadow": lambda **options: pyg.ShaDowKHopSampler(DATA, 2, 2, batch_size=32, shuffle=True, **options),
    "saint": lambda **options: pyg.GraphSAINTRandomWalkSampler(DATA, 20, 2, num_steps=9, sample_coverage=1, **options),
    "clusters": lambda **options: pyg.ClusterLoader(PARTS, batch_size=2, shuffle=True, **options),
    "sampler": lambda **options: pyg.NeighborLoader(
        DATA, [2], batch_size=32, shuffle=True, neighbor_sampler=pyg.BulkSampler(DATA, [2], **options)
    ),
}


@pytest.fixture(params=MADE)
def made(request):
    return MADE[request.param]


def equal(ours, theirs):
    return all(alike(one.to_dict(), other.to_dict()) for one, other in zip(ours, theirs, strict=True))


def alike(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize("seed", [5, -1, 2**63])
def test_the_seed_of_torch_is_that_of_a_loader_without_one(made, seed):
    torch.manual_seed(seed)
    before = torch.get_rng_state()
    loader = made()
    batches = list(loader)
    assert torch.equal(torch.get_rng_state(), before)
    assert loader.seed == seed % 2**64
    torch.manual_seed(0)
    assert equal(batches, made(seed=seed % 2**64))
    assert not equal(batches, made(seed=6))


def test_a_seed_that_is_given_wins(made):
    torch.manual_seed(5)
    loader = made(seed=2)
    torch.manual_seed(6)
    assert equal(loader, made(seed=2))
    assert loader.seed == 2


SEEDS = """
import sys, torch
if {before}: torch.manual_seed({before})
from bulksample.interop.pyg import NeighborLoader
from torch_geometric.data import Data
{after}
print(NeighborLoader(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2), [1]).seed)
"""


@pytest.mark.long
@pytest.mark.parametrize(("before", "after", "expected"), [(0, "", 0), (7, "", 7), (0, "torch.manual_seed(2**50)", 2**50)])
def test_a_process_without_a_seed_has_seed_0(tmp_path, before, after, expected):
    path = tmp_path / "program.py"
    path.write_text(SEEDS.format(before=before, after=after))
    done = run_alone([path])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(expected)]


SHARED = """
import json, torch
import bulksample as bs
from torch_geometric.data import Data
from bulksample.interop.pyg import NeighborLoader

world = bs.init()
data = Data(edge_index=torch.randint(400, (2, 9000), generator=torch.Generator().manual_seed(0)), num_nodes=400)
torch.manual_seed(5 + world.rank)
loader = NeighborLoader(data, [5, 5], batch_size=20, shuffle=True, comm=world)
alone = list(NeighborLoader(data, [5, 5], batch_size=20, shuffle=True, seed=5))
equal = [torch.equal(batch.e_id, alone[2 * t + world.rank].e_id) for t, batch in enumerate(loader)]
print("\\n" + json.dumps({"rank": world.rank, "seed": loader.seed, "equal": equal}) + "\\n", end="", flush=True)
"""


@pytest.mark.long
def test_ranks_that_share_a_loader_take_the_seed_of_rank_0():
    ended = run_ranks(2, SHARED, launcher="mpirun")
    assert ended.code == 0, ended
    lines = sorted((json.loads(line) for line in ended.out.splitlines() if line.startswith('{"rank"')), key=lambda line: line["rank"])
    assert lines == [{"rank": rank, "seed": 5, "equal": [True] * 10} for rank in range(2)]


def neighbors(batch):
    """The neighbors of each vertex that a batch expands."""
    found = {}
    source, destination = batch.n_id[batch.edge_index]
    for one, other in zip(source.tolist(), destination.tolist(), strict=True):
        found.setdefault(other, set()).add(one)
    return found


@pytest.mark.parametrize(("seeds", "repeated"), [((0, 0), True), ((0, 1), False)])
def test_ids_that_are_split_by_hand_are_drawn_apart_if_each_rank_has_seeded_torch(seeds, repeated):
    data = make_data(400, 20000)
    epochs = []
    for rank, seed in enumerate(seeds):
        torch.manual_seed(seed)
        epochs.append(list(pyg.NeighborLoader(data, [5, 5], input_nodes=torch.arange(200 * rank, 200 * rank + 200), batch_size=20)))
    met, same_draws = 0, 0
    for one, other in ((neighbors(one), neighbors(other)) for one, other in zip(*epochs, strict=True)):
        met += len(one.keys() & other.keys())
        same_draws += sum(one[v] == other[v] for v in one.keys() & other.keys())
    assert met > 200
    assert same_draws > met / 3 if repeated else same_draws < met / 100  # those that both expand in one hop


def test_a_loader_without_a_seed_goes_on_with_that_of_its_state(made):
    """As after a run that was started again with another seed of torch, or none."""
    torch.manual_seed(5)
    loader = made()
    batches, following = list(loader), list(loader)
    loader.epoch = 0
    next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    torch.manual_seed(6)
    again = made()
    list(again)
    again.load_state_dict(state)
    assert again.seed == 5
    assert equal(again, batches[1:])
    assert equal(again, following)


def test_a_state_of_another_seed_than_the_given_one_is_refused(made):
    torch.manual_seed(5)
    state, given, unseeded = made().state_dict(), made(seed=4), made()
    with pytest.raises(bs.UsageError, match="random_seed was 5 and is 4 now; use seed=5"):
        given.load_state_dict(state)
    torch.manual_seed(6)
    unseeded = made()
    with pytest.raises(bs.UsageError, match="does not fit"):
        unseeded.load_state_dict({**state, "loader": "another"})
    assert unseeded.seed == 6
    assert equal(unseeded, made(seed=6))


def test_ranks_that_load_states_of_other_seeds_are_refused():
    from bulksample.distributed.comm.threads import on_threads

    states = [MADE["neighbors"](seed=seed).state_dict() for seed in (1, 2)]

    def body(comm, states):
        loader = MADE["neighbors"](comm=comm)
        loader.load_state_dict(states[comm.rank])
        return len(list(loader))

    with pytest.raises(bs.UsageError, match="the ranks do not agree on the seed: 1 on rank 0, 2 on rank 1"):
        on_threads(2, lambda comm: body(comm, states))
    assert on_threads(2, lambda comm: body(comm, states[:1] * 2)) == [5, 5]


class Made(IterableDataset):
    """The seed and the first vertices of a loader that the worker makes."""

    def __iter__(self):
        loader = MADE["neighbors"]()
        loader.epoch = 0
        yield [loader.seed, *next(iter(loader)).n_id.tolist()]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="processes do not fork here")
def test_a_loader_that_a_worker_makes_does_not_depend_on_the_seed_of_the_worker():
    torch.manual_seed(5)
    loader = DataLoader(Made(), batch_size=None, num_workers=2, timeout=PATIENCE, multiprocessing_context="fork")
    found = [tuple(one) for _ in range(2) for one in loader]
    assert len(found) == 4
    assert len(set(found)) == 1
    assert found[0][0] == 0

"""`bulksample.init` and `bulksample.load(path, world=...)` on real ranks."""

import json

import numpy as np
import pytest
from launch import run_alone, run_ranks
from waiting import PATIENCE

import bulksample as bs

N, WIDTH = 40_000, 512  # 82 MB of features

PROGRAM = """
import gc, json, sys
import bulksample as bs
from bulksample.views import loading  # what only the first use imports
import bulksample.interop.shared_steps

def resident():
    gc.collect()
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmRSS"))

world = bs.init({init})
before = resident()
graph = bs.load(sys.argv[1], world=world, {place})
loader = bs.Loader(graph, fanouts=[3, 2], batch_size=256, seeds="train", seed=3)
after = resident()
digests = [batch.digest() for batch in loader if batch.x.shape[1] == 512]
line = json.dumps({{"rank": world.rank, "ranks": world.size, "grown": after - before, "digests": digests}})
print("\\n" + line + "\\n", end="", flush=True)
"""


def reports(ended):
    assert ended.code == 0, ended
    lines = (json.loads(line) for line in ended.out.splitlines() if line.startswith('{"rank"'))
    return sorted(lines, key=lambda line: line["rank"])


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    rng = np.random.default_rng(0)
    ends = rng.integers(0, N, (2, 4 * N))
    x = rng.standard_normal((N, WIDTH), np.float32)
    graph = bs.from_edges(*ends, num_nodes=N, x=x, y=np.zeros(N, np.int64), train_mask=np.arange(N) % 10 == 0)
    path = tmp_path_factory.mktemp("graphs") / "wide"
    graph.save(path)
    return path


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_a_rank_takes_the_memory_of_its_share(stored, launcher):
    """Resident bytes grow by a rank's block row of features and edges, not by the whole graph."""
    program = stored.parent / "program.py"
    program.write_text(PROGRAM.format(init="", place=""))
    ranks = reports(run_ranks(4, [str(program), str(stored)], launcher=launcher))
    share = N * WIDTH * 4 / 4
    assert [rank["ranks"] for rank in ranks] == [4] * 4
    for rank in ranks:
        assert share < rank["grown"] + 2**20
        assert rank["grown"] < share + 14 * 2**20  # of the 82 MB: a quarter, and 14 MiB for edges, messages and threads
    alone = [bs.Loader(bs.load(stored), fanouts=[3, 2], batch_size=256, seed=3, rank=rank, ranks=4) for rank in range(4)]
    assert [rank["digests"] for rank in ranks] == [[batch.digest() for batch in loader] for loader in alone]


GROUP = """
import json, torch
import bulksample as bs

world = bs.init(process_group="gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
model(torch.tensor([[float(world.rank + 1)]])).backward()
grad = model.module.weight.grad.item()
line = json.dumps({"rank": world.rank, "ranks": world.size, "same": bs.init() is world, "grad": grad})
print("\\n" + line + "\\n", end="", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_a_process_group_begins_with_the_ranks_of_the_launcher(launcher):
    ranks = reports(run_ranks(2, GROUP, launcher=launcher))
    assert ranks == [{"rank": rank, "ranks": 2, "same": True, "grad": 1.5} for rank in range(2)]  # the mean of 1 and 2


@pytest.mark.long
def test_without_a_launcher_a_rank_is_alone(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(GROUP)

    done = run_alone([path])
    assert done.returncode == 0, done.stderr
    assert '{"rank": 0, "ranks": 1, "same": true, "grad": 1.0}' in done.stdout


LEAVES = """
import sys
import bulksample as bs

world = bs.init(timeout={PATIENCE}, process_group={group!r})
loader = bs.Loader(bs.load(sys.argv[1], world=world), fanouts=[3, 2], batch_size=64, bulk_size=1, seed=3)
for step, batch in enumerate(loader):
    if world.rank in {who} and step == 2:
        {how}
"""


@pytest.mark.long
@pytest.mark.parametrize(("how", "who", "group", "code", "said"), [
    ("break", (1,), None, 75, "rank 1 left early"),
    ("raise KeyError('mine')", (1,), None, 1, "KeyError: 'mine'"),
    ("raise KeyError('mine')", (0, 1), "gloo", 1, "KeyError: 'mine'"),  # torch.distributed holds back what exception hooks print
])  # fmt: skip
def test_a_rank_that_leaves_a_loop_early_ends_all_of_them(stored, tmp_path, how, who, group, code, said):
    program = tmp_path / "program.py"
    program.write_text(LEAVES.format(how=how, who=who, group=group, PATIENCE=PATIENCE))
    ended = run_ranks(2, [str(program), str(stored)])
    assert ended.code == code, ended
    assert said in ended.err, ended


MODELS = """
import json, sys, torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
import bulksample as bs

world = bs.init(process_group="gloo")
loader = bs.Loader(bs.load(sys.argv[1], world=world), fanouts=[3, 2], batch_size=512, seeds="train", seed=3)

class Sage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(1024, 8), torch.nn.Linear(16, 3)])

    def forward(self, x, blocks):
        for layer, block in zip(self.layers, blocks):
            x = layer(torch.cat([x[: block.num_destinations], block.aggregate(x)], dim=1))
        return x

def trained(wrap):
    torch.manual_seed(0)
    model, losses = wrap(Sage()), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader.bulks.epoch = 0
    for batch in loader.to("cpu"):
        loss = F.cross_entropy(model(batch.x, batch.blocks), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

def sharded(model):
    made = fully_shard(model, mesh=init_device_mesh("cpu", (world.size,)))
    assert any(isinstance(parameter, DTensor) for parameter in made.parameters())
    return made

found = {"rank": world.rank, "ddp": trained(torch.nn.parallel.DistributedDataParallel), "fsdp": trained(sharded)}
print("\\n" + json.dumps(found) + "\\n", end="", flush=True)
"""


@pytest.mark.long
def test_a_model_trains_alike_under_ddp_and_fsdp(stored, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MODELS)
    for rank in reports(run_ranks(2, [str(program), str(stored)], launcher="torchrun")):
        assert len(rank["ddp"]) == 4
        np.testing.assert_allclose(rank["fsdp"], rank["ddp"], rtol=1e-4)
        assert rank["ddp"][-1] < rank["ddp"][0]

"""A model of the user's own under `torch.compile`: one graph for mini-batches of all sizes, with the numbers of the model as it is."""

import numpy as np
import pytest
import torch
from launch import run_ranks
from oracles import dense_block
from torch._dynamo.testing import CompileCounterWithBackend

import bulksample as bs
from bulksample import Block
from bulksample.nn import compiled
from bulksample.nn.tensor_block import TensorBlock

pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # nothing writes to it
MODEL = """
import numpy as np
import torch
import bulksample as bs

class Sage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(16, 12), torch.nn.Linear(24, 3)])

    def forward(self, blocks, h):
        for block, layer in zip(blocks, self.layers):
            h = layer(torch.cat([h[: block.num_destinations], block.aggregate(h.relu())], dim=1))
        return h

rng = np.random.default_rng(0)
ends, x, y = rng.integers(0, 500, (2, 4000)), rng.standard_normal((500, 8)).astype(np.float32), rng.integers(0, 3, 500)
graph = bs.from_edges(*ends, x=x, y=y)

def gradients(model, batches):
    for parameter in model.parameters():
        parameter.grad = None
    for batch in batches:
        torch.nn.functional.cross_entropy(model(batch.blocks, batch.x), batch.y).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]
"""
SPACE = {}
exec(MODEL, SPACE)


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()


def batches(**options):
    return list(bs.Loader(SPACE["graph"], fanouts=[4, 3], batch_size=64, seed=1, **options))


@pytest.mark.parametrize("sampler", ["sage", "ladies"])  # means, and sums with weights
def test_one_graph_computes_all_batches(sampler):
    given, model, counter = batches(sampler=sampler), SPACE["Sage"](), CompileCounterWithBackend("aot_eager")
    assert len({len(batch.vertices) for batch in given}) > 3
    expected = SPACE["gradients"](model, given)
    found = SPACE["gradients"](torch.compile(model, fullgraph=True, dynamic=True, backend=counter), given)
    torch.testing.assert_close(found, expected)
    assert counter.frame_count == 1


@pytest.mark.long
def test_the_compiler_of_torch_makes_the_same_numbers():
    given, model = batches(), SPACE["Sage"]()
    expected = SPACE["gradients"](model, given)
    torch.testing.assert_close(SPACE["gradients"](torch.compile(model, dynamic=True), given), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", [7, 9])  # more than there are sources
def test_a_compiled_sum_is_the_dense_product(dtype, weighted, rows):
    weights = np.array([0.5, 2, 1, 3], np.float32) if weighted else None
    block = Block(np.array([0, 3, 3, 4]), np.array([0, 2, 6, 5], np.int32), weights, 7)
    h, grad = torch.randn(rows, 5).to(dtype).requires_grad_(), torch.randn(3, 5).to(dtype)
    y = torch.compile(TensorBlock(block, "cpu").aggregate, fullgraph=True, backend="aot_eager")(h)
    dense, close = torch.from_numpy(dense_block(block)), {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(y, (dense @ h[:7].double()).to(dtype), **close)
    y.backward(grad)
    torch.testing.assert_close(h.grad[:7], (dense.T @ grad.double()).to(dtype), **close)
    assert not h.grad[7:].any()


@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 2.0, 1.0])])
def test_the_operators_keep_the_rules_of_torch(weights):
    edges = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 3], dtype=torch.int32), weights
    torch.library.opcheck(compiled._aggregate, (*edges, torch.randn(4, 5, requires_grad=True)))
    torch.library.opcheck(compiled._aggregate_gradient, (*edges, torch.randn(2, 5), 4))


def test_ranks_of_torch_train_a_compiled_model():
    program = (
        MODEL
        + """
import warnings
warnings.filterwarnings("ignore")
world = bs.init(process_group="gloo")
given = list(bs.Loader(graph, fanouts=[4, 3], batch_size=64, seed=1, rank=world.rank, ranks=world.size))
model = torch.nn.parallel.DistributedDataParallel(Sage())
expected = gradients(model, given)
found = gradients(torch.compile(model, dynamic=True, backend="aot_eager"), given)
torch.testing.assert_close(found, expected)
print(f"rank {world.rank}: {sum(one.abs().sum().item() for one in found):.4f}")
"""
    )
    ended = run_ranks(2, program)
    assert ended.code == 0, ended
    (one,), (other,) = ([line.split()[-1] for line in ended.out.splitlines() if line.startswith(f"rank {rank}:")] for rank in (0, 1))
    assert one == other

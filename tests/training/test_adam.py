"""Adam without torch's compiler makes the updates of `torch.optim.Adam`, and a training never imports the compiler."""

import subprocess
import sys
from functools import partial

import pytest
import torch
from communities import community_graph

from bulksample.data import store
from bulksample.training.weights import Adam


def steps(kind, weights):
    """Return the weights after each of six steps; the moments are saved and loaded half-way."""
    parameters = [torch.nn.Parameter(tensor.clone()) for tensor in weights]
    optimizer, found = kind(parameters, lr=0.05, weight_decay=0.1), []
    for step in range(6):
        if step == 3:
            state, optimizer = optimizer.state_dict(), kind(parameters, lr=0.05, weight_decay=0.1)
            optimizer.load_state_dict(state)
        optimizer.zero_grad()
        assert all(parameter.grad is None for parameter in parameters)
        sum((parameter**4).sum() for parameter in parameters).backward()
        optimizer.step()
        found.append(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    return torch.stack(found)


def test_it_makes_the_updates_of_torch_without_the_compiler(monkeypatch):
    weights = [torch.randn(5, 3), torch.randn(7)]
    expected = steps(partial(torch.optim.Adam, fused=True), weights)
    torch.testing.assert_close(expected, steps(torch.optim.Adam, weights), rtol=1e-5, atol=1e-6)
    for name in [name for name in sys.modules if name.startswith("torch._dynamo")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # an import of it fails from now on
    assert torch.equal(steps(Adam, weights), expected)
    assert len(expected.unique(dim=0)) == 6


@pytest.mark.long
@pytest.mark.parametrize("method", ["sync", "llcg"])
def test_a_training_never_imports_the_compiler(tmp_path, method):
    store.save(community_graph(), tmp_path / "g")
    program = (
        "import sys\nfrom bulksample.cli import main\n"
        "try:\n    main()\nfinally:\n    print(sorted(name for name in sys.modules if name.partition('.')[0] in ('sympy', 'functorch')"
        " or name.startswith(('torch._dynamo', 'torch._inductor'))), file=sys.stderr)\n"
    )
    options = ["--method", method, "--quiet", "--fanouts", "3,3", "--epochs", "2", "--threads", "1", "--checkpoint", str(tmp_path / "c")]
    done = subprocess.run([sys.executable, "-c", program, "train", str(tmp_path / "g"), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "[]\n"

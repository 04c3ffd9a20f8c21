"""Dropout on an emulated device: its kernels draw the masks of the host, in every model and method, and no step waits for them."""

import numpy as np
import pytest
import torch
from communities import community_graph
from emulation.apart import READS, Apart, ApartCard, Apartness, ApartPlace
from emulation.host import compiler
from oracles import assert_identical
from planted_relations import planted
from recorder import Recorder
from test_step_sums import Watched

from bulksample.backends.dropout import Mask
from bulksample.distributed.comm.threads import on_threads
from bulksample.graph import NODE
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.nn.aggregate import SparseRows
from bulksample.nn.dropout import Kernels, PassKey, PassNames, RowNames, epilogue
from bulksample.training.compute import ComputeContext
from bulksample.training.cuda.device_dropout import DeviceKernels
from bulksample.training.cuda.device_rows import rows_on_device

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
RUN = {
    "fanouts": (3, 2),
    "hidden": 8,
    "batch_size": 32,
    "bulk_size": 2,
    "epochs": 2,
    "threads": 1,
    "seed": 4,
    "quiet": True,
    "dropout": 0.5,
}
RELATIONS = {"model": "hetero-sage", "batch_size": 16, "featureless": "constant"}


def names_of(rows, trees):
    rng = np.random.default_rng(1)
    return [rng.integers(0, 2**31, rows).astype(np.int32), rng.integers(0, 9, rows).astype(np.int32) if trees else None]


def passed(names, z, b, grad, relu):
    """The result of a pass, and the gradients of z and b."""
    z, b = z.clone().requires_grad_(), None if b is None else b.clone().requires_grad_()
    y = epilogue(z, b, relu, names.mask(0.4, len(z), 2), names.kernels)
    y.backward(grad)
    made = [y.detach(), z.grad] + ([] if b is None else [b.grad])
    return [(one.held if isinstance(one, Apart) else one).numpy() for one in made]


@pytest.mark.parametrize("placed", [False, True], ids=["sent", "there"])
@pytest.mark.parametrize("trees", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_device_has_the_masks_and_the_gradients_of_the_host(dtype, relu, trees, placed):
    rng = torch.Generator().manual_seed(0)
    z, grad = (torch.randn(300, 13, dtype=dtype, generator=rng) for _ in range(2))
    b, (vertices, tree) = torch.randn(13, dtype=dtype, generator=rng), names_of(320, trees)
    named = PassKey(2**63 + 1, 3, 2**32 - 1)
    for bias in (None, b):
        expected = passed(PassNames(named, {NODE: RowNames(vertices, tree)}), z, bias, grad, relu)
        with Apartness():
            card = ApartCard()
            with card.streams.train.on("test"):
                put = [None if one is None else card.put(one) for one in (z, bias, grad)]
                here = [card.put(one) if placed and one is not None else one for one in (vertices, tree)]
                waited = len(READS)
                got = passed(PassNames(named, {NODE: RowNames(*here)}, DeviceKernels(card)), *put, relu)
                assert len(READS) == waited
        if dtype == torch.float32:
            assert_identical([one.view(np.uint32) for one in got], [one.view(np.uint32) for one in expected])
        else:  # by torch's operations, with the masks of all
            for one, other in zip(got, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
        assert 0.3 < (expected[1] == 0).mean() < 0.9


def test_entries_of_sparse_rows_on_a_device_are_dropped_as_on_the_host():
    rng = np.random.default_rng(2)
    indptr, (vertices, trees) = np.r_[0, np.cumsum(rng.integers(0, 6, 40))], names_of(40, True)
    columns, values = rng.integers(0, 90, indptr[-1]).astype(np.int32), rng.standard_normal(indptr[-1]).astype(np.float32)
    rows = SparseRows(indptr, columns, torch.from_numpy(values), 90)
    host = PassNames(PassKey(5), {NODE: RowNames(vertices, trees)})
    expected = host.kernels.drop_entries(rows, host.mask(0.5, 40, 0)).weights_or_ones().numpy()
    with Apartness():
        card = ApartCard()
        with card.streams.train.on("test"):
            there = PassNames(PassKey(5), {NODE: RowNames(vertices, trees)}, DeviceKernels(card))
            got = there.kernels.drop_entries(rows_on_device(card, rows), there.mask(0.5, 40, 0))
            assert_identical([got.weights_or_ones().held.numpy()], [expected])
    assert 0.3 < (expected == 0).mean() < 0.7


def losses(source, comm=None, where=None, **options):
    recorder = Recorder()
    make_trainer(TrainConfig.of(**{**RUN, **options}), source, comm, [recorder], where or ComputeContext()).run()
    return recorder.losses


def losses_apart(source, comm=None, **options):
    with Apartness():
        return losses(source, comm, ApartPlace(), **options)


CASES = [
    ("plain", {}, True), ("plain", {"model": "gcn", "input_dropout": 0.2, "layer_norm": True}, True),
    ("plain", {"backend": "native", "input_dropout": 0.2}, True), ("sparse", {"input_dropout": 0.3}, False),
    ("plain", {"model": "gat", "heads": 2}, False), ("plain", {"model": "sage-pool", "frontier": "new"}, False),
    ("typed", RELATIONS, True), ("typed", {**RELATIONS, "model": "hetero-gat", "heads": 2, "input_dropout": 0.2}, False),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options", "exact"), CASES, ids=str)
def test_every_dropout_of_a_step_is_drawn_by_the_kernels_without_a_wait(monkeypatch, kind, options, exact):
    graph = planted() if kind == "typed" else community_graph(150, sparse=kind == "sparse")
    asked = {**RUN, "evaluate": "none", **options}
    expected, launched = losses(graph, **asked), []

    def note(device):
        whole = device._launch
        device._launch = lambda name, *more: (launched.append(name), whole(name, *more))

    for name in ("epilogue", "gradient", "drop_entries"):

        def by_torch(self, *given, whole=getattr(Kernels, name)):
            assert not any(isinstance(one, Mask) for one in given), "torch's operations, not the kernels of the device"
            return whole(self, *given)

        monkeypatch.setattr(Kernels, name, by_torch)
    seen = Watched(graph, watch=note, **asked)
    assert seen.recorder.losses == (expected if exact else pytest.approx(expected, rel=2e-5))
    assert seen.recorder.losses != losses(graph, **asked | {"dropout": 0.0, "input_dropout": 0.0})
    if kind != "sparse" and "backend" not in options:  # whose rows or samples the host puts on the device
        assert not any(seen.reads)
    steps, forward = len(expected), sum(name in ("epilogue_fours", "epilogue_ones") for name in launched)
    assert forward >= steps
    assert sum(name.startswith("epilogue_gradient") for name in launched) >= steps
    assert launched.count("drop_entries") == (steps if kind == "sparse" else 0)


PARTS = [("plain", method) for method in ("cofree", "grappa", "random-tma", "llcg")] + [("typed", "random-tma"), ("typed", "llcg")]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "method"), PARTS)
def test_parts_on_devices_draw_by_the_vertices_of_the_whole_graph(kind, method):
    """Numbers of a part are exchanged for those of the graph on the device."""
    graph, options = (planted(), RELATIONS) if kind == "typed" else (community_graph(150), {"input_dropout": 0.2})
    asked = {"method": method, **({"interval": "2"} if method in ("random-tma", "llcg") else {}), **options}
    expected = on_threads(3, lambda comm: losses(graph, comm, **asked))[0]
    got = on_threads(3, lambda comm: losses_apart(graph, comm, **asked))[0]
    assert got == pytest.approx(expected, rel=1e-5)
    assert len(got) > 1

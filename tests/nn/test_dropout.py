"""Dropout by names: masks of blocks and models equal plain Python's Philox, and gradients torch's of the same formula."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from communities import community_graph
from oracles import philox

import bulksample as bs
from bulksample import UsageError
from bulksample.backends.dropout import kept_parts
from bulksample.graph import NODE
from bulksample.nn.dropout import HostKernels, Kernels, PassKey, PassNames, RowNames, epilogue
from bulksample.nn.model import Gnn

SEED, EPOCH, MINIBATCH, DROPOUT = 2**63 + 11, 3, 2**31 + 7, 12  # the purpose, in the upper four bits of the last word of a counter


def kept(p, vertices, width, layer, place=0, kind=0, stage=0, seed=SEED, epoch=EPOCH, minibatch=MINIBATCH, trees=None):
    """Which numbers of rows are kept, one by one: bool, shape (rows, width)."""
    low, high, *_ = philox((layer << 24 | place << 16 | kind, 0, stage, DROPOUT << 28 | epoch), seed)
    parts, made = round((1 - p) * 65536), []
    for row, vertex in enumerate(vertices.tolist()):
        for column in range(width):
            words = philox((column // 8, vertex, minibatch, 0 if trees is None else trees[row]), high << 32 | low)
            made.append((words[column % 8 // 2] >> 16 * (column % 2) & 0xFFFF) < parts)
    return torch.tensor(made).reshape(len(vertices), width)


def names(vertices, trees=None, kernels=None, **fields):
    rows = RowNames(np.asarray(vertices, np.int32), None if trees is None else np.asarray(trees, np.int32))
    return PassNames(PassKey(**{"seed": SEED, "epoch": EPOCH, "minibatch": MINIBATCH, **fields}), {NODE: rows}, kernels)


VERTICES = np.array([5, 0, 2**31 - 1, 17, 3, 400, 12])


@pytest.mark.parametrize("kernels", [HostKernels(), Kernels()], ids=["native", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("relu", "bias"), [(True, True), (True, False), (False, True), (False, False)])
def test_the_pass_and_its_gradient_are_those_of_the_formula(kernels, dtype, relu, bias):
    p, width = 0.3, 11
    rng = torch.Generator().manual_seed(0)
    z, grad = (torch.randn(7, width, dtype=dtype, generator=rng) for _ in range(2))
    b = torch.randn(width, dtype=dtype, generator=rng) if bias else None
    keep, scale = kept(p, VERTICES, width, 2, 1, trees=range(7)), 65536 / round(0.7 * 65536)
    found, expected = [], []
    for results, compute in (
        (found, lambda z, b: epilogue(z, b, relu, names(VERTICES, range(7)).mask(p, 7, 2, 1), kernels)),
        (expected, lambda z, b: (F.relu(z if b is None else z + b) if relu else z if b is None else z + b) * keep * scale),
    ):
        given = [None if one is None else one.clone().requires_grad_() for one in (z, b)]
        y = compute(*given)
        y.backward(grad)
        results += [y.detach(), *(one.grad for one in given if one is not None)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
        assert one.dtype == dtype


def test_half_precision_is_computed_in_single():
    z = torch.randn(7, 9).bfloat16().requires_grad_()
    y = epilogue(z, relu=True)
    y.sum().backward()
    assert (y.dtype, z.grad.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(y, F.relu(z.float()))
    b = torch.randn(9).bfloat16().requires_grad_()  # of a model in half precision
    y = epilogue(z.detach(), b, relu=True)
    torch.testing.assert_close(y, F.relu(z.float() + b.float()))
    y.sum().backward()
    torch.testing.assert_close(b.grad, (y > 0).sum(0).bfloat16())


def test_memory_is_reused_only_if_asked_and_saved_rows_are_watched():
    z = torch.randn(7, 16)
    assert epilogue(z.clone(), relu=True).data_ptr() != z.data_ptr()
    taken = z.clone()
    assert epilogue(taken, torch.ones(16), relu=True, reuse=True).data_ptr() == taken.data_ptr()
    assert epilogue(z[:, ::2], relu=True, reuse=True).data_ptr() != z.data_ptr()
    y = epilogue(z.clone().requires_grad_(), relu=True)
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    z.requires_grad_()
    (slope,) = torch.autograd.grad(epilogue(z, relu=True).square().sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        slope.sum().backward()


def test_not_a_number_passes_forward_and_backward():
    z = torch.tensor([[float("nan"), 1.0, -1.0]], requires_grad=True)
    y = epilogue(z, relu=True)
    assert y.isnan().tolist() == [[True, False, False]]
    y.backward(torch.tensor([[float("nan"), 2.0, 3.0]]))
    torch.testing.assert_close(z.grad, torch.tensor([[float("nan"), 2.0, 0.0]]), equal_nan=True)


def loader(**options):
    graph = community_graph(n=120, classes=3, width=10, seed=2)
    return bs.Loader(graph, sampler="sage", fanouts=(4, 3), batch_size=20, seeds="all", seed=SEED, **options)


def test_a_block_draws_by_its_vertices():
    batch = next(iter(loader()))
    vertices, (first, last) = batch.vertices.numpy(), batch.blocks
    for block, layer in ((first, 1), (last, 2)):
        h = torch.randn(block.num_sources, 5)
        keep = kept(0.25, vertices[: len(h)], 5, layer, epoch=batch.epoch, minibatch=batch.id)
        torch.testing.assert_close(block.dropout(h, 0.25), h * keep * (65536 / 49152))
        again = kept(0.25, vertices[: len(h)], 5, layer, place=1, epoch=batch.epoch, minibatch=batch.id)
        torch.testing.assert_close(block.dropout_relu(h, 0.25), F.relu(h) * again * (65536 / 49152))  # the second of the block
        torch.testing.assert_close(block.dropout(h, 0.25, place=0), h * keep * (65536 / 49152))
        few = block.dropout(h[: block.num_destinations], 0.25, place=0)
        torch.testing.assert_close(few, (h * keep * (65536 / 49152))[: block.num_destinations])
        torch.testing.assert_close(block.dropout_relu(h, 0.5, training=False), F.relu(h))
        assert block.dropout(h, 0.5, training=False) is h
        assert block.dropout(h, 0.0) is h


def test_masks_of_a_loader_are_those_of_every_epoch_seed_and_mini_batch():
    h, drawn = torch.ones(20, 64), set()
    for seed in (1, 2):
        graph = community_graph(n=120, classes=3, width=10, seed=2)
        for _ in range(2):
            again = bs.Loader(graph, sampler="sage", fanouts=(4, 3), batch_size=20, seeds="all", seed=seed, shuffle=False)
            masks = [batch.blocks[1].dropout(h).numpy().tobytes() for _ in range(2) for batch in again]
            drawn |= set(masks)
        assert len(masks) == 12
    assert len(drawn) == 24  # the second loader of a seed draws as the first


def test_relations_draw_by_type():
    paper, author = bs.VertexType("paper", 40), bs.VertexType("author", 40)
    rng = np.random.default_rng(0)
    ends = lambda: (rng.integers(0, 40, 200), rng.integers(0, 40, 200))  # noqa: E731
    relations = [bs.relation_from_edges(author, "writes", paper, *ends()), bs.relation_from_edges(paper, "by", author, *ends())]
    graph = bs.Graph.of([paper, author], relations, "typed")
    batch = next(iter(bs.Loader(graph, "sage", (3, 3), seeds=("paper", np.arange(10)), batch_size=10, seed=SEED)))
    blocks = batch.blocks[0]
    for kind, (key, name) in enumerate(((("author", "writes", "paper"), "paper"), (("paper", "by", "author"), "author"))):
        block = blocks[key]
        rows = batch.vertices[name].numpy()[: block.num_destinations]
        h = torch.randn(len(rows), 9)
        keep = kept(0.5, rows, 9, 1, kind=kind, epoch=batch.epoch, minibatch=batch.id)
        torch.testing.assert_close(block.dropout(h), h * keep * 2)
        with pytest.raises(UsageError, match="a row for each destination"):
            block.dropout(torch.randn(len(rows) + 1, 9))


def test_relations_into_one_type_draw_apart():
    a, b = bs.VertexType("a", 40), bs.VertexType("b", 40)
    rng = np.random.default_rng(0)
    relations = [bs.relation_from_edges(kind, "to", b, *rng.integers(0, 40, (2, 200))) for kind in (a, b)]
    batch = next(
        iter(bs.Loader(bs.Graph.of([a, b], relations, "two"), "sage", (3, 3), seeds=("b", np.arange(10)), batch_size=10, seed=SEED))
    )
    for blocks in batch.blocks:
        one, other = blocks.values()
        h = torch.ones(one.num_destinations, 64)
        first, second = one.dropout(h), other.dropout(h)
        assert not torch.equal(first, second)
        assert torch.equal(first, other.dropout(h, place=0))
        assert torch.equal(second, one.dropout(h, place=1))


def test_what_cannot_be_dropped_is_refused():
    batch = next(iter(loader()))
    block, h = batch.blocks[1], torch.ones(batch.blocks[1].num_destinations, 4)
    for p in (1, 1.0, -0.1, float("nan"), True, "x", 1e-6, 1 - 1e-6):
        with pytest.raises(UsageError, match="p"):
            block.dropout(h, p)
    with pytest.raises(UsageError, match=r"got \d+ rows, of \d+ vertices"):
        block.dropout(torch.ones(len(batch.vertices) + 1, 4))
    with pytest.raises(UsageError, match="this block knows none"):
        type(block)(block.block, "cpu").dropout(h)
    for other in (h[:, 0], torch.ones(len(h), 2, 4)):
        with pytest.raises(UsageError, match=r"got torch.float32 of shape"):
            block.dropout(other)
    assert kept_parts(0.5) == kept_parts(np.float32(0.5)) == 32768
    numpy_batch = next(iter(loader(out="numpy")))
    assert not hasattr(numpy_batch.blocks[0], "dropout")


def test_a_pass_without_names_is_refused():
    batch = next(iter(loader()))
    model = Gnn("sage", [10, 6, 3], dropout=0.5)
    blocks, degrees = batch.minibatch.blocks, torch.zeros(len(batch.vertices))
    with pytest.raises(UsageError, match="give the pass names"):
        model(blocks, batch.x, degrees)
    assert model.eval()(blocks, batch.x, degrees).shape == (20, 3)
    model.train()
    first, second = (model(blocks, batch.x, degrees, PassNames.of(batch.minibatch)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "sage-pool"])
def test_a_model_equals_the_same_in_plain_torch(name, norm):
    """One layer after another with torch's operations and masks of plain Python, forward and backward, in float64's accuracy."""
    batch = next(iter(loader()))
    model = Gnn(name, [10, 8, 3], dropout=0.3, input_dropout=0.2, batch_norm=norm == "batch", layer_norm=norm == "layer", heads=2, seed=1)
    for parameter in model.parameters():  # biases are zero at first
        parameter.data.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())) * 0.1)
    blocks, degrees, vertices = batch.minibatch.blocks, torch.arange(len(batch.vertices)) % 5 + 1.0, batch.vertices.numpy()
    plain = copy.deepcopy(model)
    logits = model(blocks, batch.x, degrees, PassNames.of(batch.minibatch))

    where = {"epoch": batch.epoch, "minibatch": batch.id}
    x = batch.x * kept(0.2, vertices, 10, 0, **where) * (65536 / round(0.8 * 65536))
    h = plain.layers[0](blocks[0], x, degrees)
    h = plain.norms[0](h) if norm != "none" else h
    h = (F.elu if name == "gat" else F.relu)(h)
    h = h * kept(0.3, vertices[: len(h)], 8, 1, **where) * (65536 / round(0.7 * 65536))
    expected = plain.layers[1](blocks[1], h, degrees[: len(h)])
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    for one in (logits, expected):
        one.square().sum().backward()
    for (which, parameter), other in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-4, atol=1e-4, msg=lambda text, which=which: f"{which}: {text}")


def test_rows_of_other_types_and_shapes_are_refused():
    """Integers were cut to integers after the product: 1 / 0.7 became 1."""
    block = next(iter(loader())).blocks[1]
    rows = torch.ones(block.num_destinations, 4)
    for h in (rows.long(), rows.bool(), rows[:, 0], rows[:, :, None], rows.to(torch.complex64), rows.numpy()):
        for given in ({}, {"training": False}):
            for drop in (block.dropout, block.dropout_relu):
                with pytest.raises(UsageError, match="floating-point numbers, shape"):
                    drop(h, 0.3, **given)
    for place in (-1, 1.5, True, 2**32):
        with pytest.raises(UsageError, match="place must be a whole number"):
            block.dropout(rows, place=place)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_rows_keep_their_type_in_training_and_evaluation(dtype):
    block = next(iter(loader())).blocks[1]
    h = torch.randn(block.num_destinations, 4).to(dtype).requires_grad_()
    for drop in (block.dropout, block.dropout_relu):
        assert {drop(h, 0.5, training=training).dtype for training in (True, False)} == {dtype}
    y = block.dropout_relu(h, 0.5, place=0)
    torch.testing.assert_close(y, block.dropout_relu(h.float(), 0.5, place=0).to(dtype))
    y.sum().backward()
    assert torch.equal(h.grad, 2 * (y > 0).to(dtype))
    layer = torch.nn.Linear(4, 4).to(dtype)
    assert layer(block.dropout_relu(layer(h), 0.5)).dtype == dtype


def test_a_batch_that_is_kept_draws_anew_in_every_pass():
    block = next(iter(loader())).blocks[1]
    h = torch.ones(block.num_destinations, 64)
    masks = [block.dropout(h).numpy().tobytes() for _ in range(600)]
    assert len(set(masks)) == 600
    assert block.dropout(h, place=256).numpy().tobytes() == masks[256]


def test_numbers_of_numpy_are_probabilities():
    assert kept_parts(np.float32(0.5)) == kept_parts(np.float64(0.5)) == 32768
    assert kept_parts(np.int64(0)) == 65536
    with pytest.raises(UsageError, match="dropout must be a number"):
        kept_parts(np.bool_(False))


def test_a_compiled_module_draws_the_same_masks():
    block = next(iter(loader())).blocks[1]
    layer = torch.nn.Linear(4, 4)
    h = torch.randn(block.num_destinations, 4)

    def forward(h):
        return layer(block.dropout_relu(layer(h), 0.5, place=0)).sin()

    compiled = torch.compile(forward, backend="eager")(h)
    torch.testing.assert_close(compiled, forward(h))
    compiled.sum().backward()
    assert layer.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["sage", "gat"])
def test_a_compiled_model_draws_the_same_masks(name):
    batch = next(iter(loader()))
    model, degrees = Gnn(name, [10, 8, 3], dropout=0.5, input_dropout=0.2, heads=2, seed=0), torch.ones(len(batch.vertices))
    given = (batch.minibatch.blocks, batch.x, degrees, PassNames.of(batch.minibatch))
    torch.testing.assert_close(torch.compile(model, backend="eager")(*given), model(*given))


def test_names_may_be_wide_or_tensors():
    batch = next(iter(loader()))
    model, degrees = Gnn("sage", [10, 6, 3], dropout=0.5, seed=0), torch.zeros(len(batch.vertices))
    blocks, expected = batch.minibatch.blocks, PassNames.of(batch.minibatch)
    logits = model(blocks, batch.x, degrees, expected)
    for vertices in (batch.vertices, batch.vertices.int(), batch.vertices.numpy()):
        assert torch.equal(model(blocks, batch.x, degrees, PassNames(expected.key, {NODE: RowNames(vertices)})), logits)
    for vertices in (batch.vertices + 2**31, batch.vertices.float()):
        with pytest.raises(UsageError, match="names of rows must be int32"):
            PassNames(expected.key, {NODE: RowNames(vertices)})


def test_a_block_of_an_earlier_pickle_opens():
    """It has its edges and its device alone."""
    block = next(iter(loader())).blocks[1]
    made = object.__new__(type(block))
    made.__setstate__({"block": block.block, "device": block.device})
    h = torch.randn(block.num_sources, 4)
    assert torch.equal(made.aggregate(h), block.aggregate(h))
    assert torch.equal(made.edge_index, block.edge_index)
    with pytest.raises(UsageError, match="knows none"):
        made.dropout(h)


@pytest.mark.parametrize("norm", [{}, {"layer_norm": True}])
@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "sage-pool"])
def test_hooks_may_keep_the_output_of_a_layer(name, norm):
    """They saw it without the bias, and then overwritten by what follows."""
    batch = next(iter(loader()))
    model = Gnn(name, [10, 8, 3], heads=2, seed=0, **norm)
    for layer in model.layers:
        torch.nn.init.constant_(layer.bias, 0.5)
    degrees, kept_rows = torch.ones(len(batch.vertices)), []
    logits = model(batch.minibatch.blocks, batch.x, degrees)
    expected = model.layers[0](batch.minibatch.blocks[0], batch.x, degrees)
    for module in (*model.layers, *model.norms):
        module.register_forward_hook(lambda module, given, made: kept_rows.append((made, made.detach().clone())))
    hooked = model(batch.minibatch.blocks, batch.x, degrees)
    torch.testing.assert_close(hooked, logits)
    torch.testing.assert_close(kept_rows[0][0], expected)
    assert all(torch.equal(made, before) for made, before in kept_rows)
    (hooked.sum() + sum(made.square().mean() for made, _ in kept_rows)).backward()

"""A module of the user's trains by every method that does not make its own model, like the same formula in our layers."""

import sys
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from communities import community_graph, dense_adjacency
from launch import run_ranks
from recorder import Recorder
from training_runs import weights_of

import bulksample as bs
from bulksample import UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer, options_beside
from bulksample.nn.model import Gnn
from bulksample.training import checkpoint

OPTIONS = {"fanouts": (4, 4), "batch_size": 40, "epochs": 3, "lr": 0.01, "threads": 1, "eval_every": 2}
METHODS = {
    "sync": {},
    "grappa": {"partition": "random"},
    "grappa on the whole view": {"method": "grappa", "full_graph": True},
    "cofree": {},
    "random-tma": {"interval": "2"},
    "llcg": {"interval": "2", "server_steps": 1},
    "full": {},
    "full in the naive form": {"form": "naive"},
    "bns": {"boundary_share": 0.5},
}
FACTORY = '''
import torch
class Sage(torch.nn.Module):
    """Two layers, h_v = (h_v, mean of h_u) W + b."""
    def __init__(self, features, outputs, hidden=8):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(2 * features, hidden), torch.nn.Linear(2 * hidden, outputs)])
        self.dropout = torch.nn.Dropout(0.4)
    def forward(self, x, blocks):
        for layer, block in zip(self.layers, blocks, strict=True):
            x = layer(torch.cat([x[: block.num_destinations], block.aggregate(x)], 1))
            x = x if layer is self.layers[-1] else self.dropout(x.relu())
        return x
def no_module(features, outputs):
    return "a string"
def without_widths():
    return Sage(1, 1)
def failing(features, outputs):
    return {}["hidden"]
class NotFinite(Sage):
    def forward(self, x, blocks):
        return super().forward(x, blocks) * (1 if self.training else float("nan"))
def wider(features, outputs):
    return Sage(features, outputs, hidden=9)
def one_column_short(features, outputs):
    return Sage(features, outputs - 1)
'''


class PlainSage(torch.nn.Module):
    """The formula of the model "sage" in plain torch, with the weights of a `Gnn` in their order; dropout by the blocks."""

    def __init__(self, gnn):
        super().__init__()
        self.p = gnn.dropout
        self.weights = torch.nn.ParameterList(parameter.detach().clone() for parameter in gnn.parameters())

    def forward(self, x, blocks):
        layers = [self.weights[i : i + 3] for i in range(0, len(self.weights), 3)]
        for i, ((own, mean, bias), block) in enumerate(zip(layers, blocks, strict=True)):
            x, (source, destination) = block.sources(x), block.edge_index
            counts = torch.zeros(block.num_destinations).index_add(0, destination, torch.ones(len(destination)))
            sums = torch.zeros(block.num_destinations, x.shape[1]).index_add(0, destination, x[source])
            x = x[: block.num_destinations] @ own + sums / counts.clamp(min=1)[:, None] @ mean + bias
            x = x if i == len(layers) - 1 else block.dropout_relu(x, self.p, self.training)
        return x


def trained(source, comm, module, **options):
    """Train a module on one rank; return its weights, the losses of its steps and the report."""
    recorder = Recorder()
    config = TrainConfig.of(**options_beside(module, {**OPTIONS, **options}))
    trainer = make_trainer(config, source, comm, [recorder], module=module)
    report = trainer.run()
    return weights_of(trainer), recorder.losses, report


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    store.save(community_graph(), folder / "plain")
    store.save(community_graph(sparse=True), folder / "sparse")
    return folder


@pytest.fixture
def factories(tmp_path, monkeypatch):
    """A module of factories in the present folder."""
    (tmp_path / "own_factories.py").write_text(FACTORY)
    (tmp_path / "broken_factories.py").write_text("def make(:")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "own_factories"
    sys.modules.pop("own_factories", None)


@pytest.mark.parametrize(("name", "p"), [("sync", 1), ("sync", 2), *((name, 2) for name in METHODS if name != "sync")])
def test_it_trains_like_the_same_formula_in_our_layers(folder, name, p):
    """Also its masks are those of ours: a block names its vertices, and the layer after which it drops."""
    gnn = Gnn("sage", [8, 8, 3], dropout=0.4, seed=3)
    options = {"method": name.partition(" ")[0], **METHODS[name], **({"graph": "partitioned"} if name == "sync" and p > 1 else {})}
    ours = on_threads(p, lambda comm: trained(folder / "plain", comm, deepcopy(gnn), **options))[0]
    plain = on_threads(p, lambda comm: trained(folder / "plain", comm, PlainSage(gnn), **options))[0]
    torch.testing.assert_close(plain[0], ours[0], rtol=1e-3, atol=1e-5)
    assert plain[1] == pytest.approx(ours[1], rel=1e-3)
    for split in ("train", "val", "test"):
        assert plain[2][f"{split}_accuracy"] == pytest.approx(ours[2][f"{split}_accuracy"], abs=0.02)  # a few logits are nearly equal


@pytest.mark.long
def test_its_exact_scores_do_not_depend_on_the_batches(folder):
    """All neighbors of every vertex are taken, so a mini-batch of any size scores as the whole graph does."""
    gnn = Gnn("sage", [8, 8, 3], seed=3)
    scores = [trained(folder / "plain", None, PlainSage(gnn), batch_size=size, lr=1e-12)[2]["val_accuracy"] for size in (7, 300)]
    assert len({*scores, trained(folder / "plain", None, gnn, lr=1e-12)[2]["val_accuracy"]}) == 1


def test_sparse_features_arrive_dense(folder):
    gnn = Gnn("sage", [8, 8, 3], seed=3)
    losses = [trained(folder / "sparse", None, module)[1] for module in (PlainSage(gnn), gnn)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_a_factory_makes_it_and_its_dropout_repeats(folder, factories):
    options = {**OPTIONS, "model": f"{factories}:Sage"}
    reports = []
    for state, seed in ((5, 1), (6, 1), (6, 2)):  # of torch's generator, which must not matter, and of the run
        torch.manual_seed(state)
        before = torch.get_rng_state()
        reports.append(bs.train(folder / "plain", **options, seed=seed))
        assert torch.equal(before, torch.get_rng_state())
    first, again, other = reports
    assert first["train_loss"] == again["train_loss"] != other["train_loss"]
    assert first["config"]["model"] == "own_factories:Sage"


def test_it_goes_on_where_it_stopped(folder, factories, tmp_path):
    options = {**OPTIONS, "model": f"{factories}:Sage", "checkpoint": str(tmp_path / "kept"), "resume": "auto"}
    whole = bs.train(folder / "plain", **{**OPTIONS, "model": f"{factories}:Sage", "epochs": 4})
    bs.train(folder / "plain", **{**options, "epochs": 2})
    assert bs.train(folder / "plain", **{**options, "epochs": 4})["train_loss"] == whole["train_loss"]


@pytest.mark.parametrize(("method", "storage"), [("sync", "given"), ("random-tma", "given"), ("sync", "fp16")])
def test_its_predictions_are_those_of_its_formula_on_dense_matrices(folder, factories, tmp_path, method, storage):
    options = {**OPTIONS, "model": f"{factories}:Sage", "method": method, "feature_norm": "l2", "feature_storage": storage}
    report = bs.train(folder / "plain", **options, checkpoint=str(tmp_path / "kept"))
    found = bs.predict(folder / "plain", tmp_path / "kept", model=f"{factories}:Sage")
    graph = bs.load(folder / "plain")
    tensors, _ = checkpoint.load(found.path)
    rows = torch.from_numpy(dense_adjacency(graph) != 0).float()
    h, means = torch.tensor(graph.features), rows / rows.sum(1, keepdim=True).clamp(min=1)
    h = (h.half().float() if storage == "fp16" else h) / h.norm(dim=1, keepdim=True)
    for i in range(2):
        weight, bias = (tensors[f"best.module.layers.{i}.{name}"] for name in ("weight", "bias"))
        h = torch.cat([h, means @ h], 1) @ weight.T + bias
        h = h if i else h.relu()
    torch.testing.assert_close(torch.from_numpy(found.logits), h, rtol=1e-3, atol=1e-4)
    assert found.embeddings is None
    for split in ("val", "test"):
        assert found.scores[f"{split}_accuracy"] == pytest.approx(report[f"{split}_accuracy"], abs=1e-12)


def test_a_frozen_module_takes_the_weights_of_a_checkpoint_in_place(folder, tmp_path):
    trained_module = PlainSage(Gnn("sage", [8, 8, 3], seed=3))
    bs.train(folder / "plain", **OPTIONS, model=trained_module, checkpoint=str(tmp_path / "kept"))
    module = PlainSage(Gnn("sage", [8, 8, 3], seed=9)).requires_grad_(False)
    found = bs.predict(folder / "plain", tmp_path / "kept", model=module)
    assert all(torch.equal(a, b) for a, b in zip(module.weights, trained_module.weights, strict=True))
    bare = replace(bs.load(folder / "plain"), labels=None, num_classes=0, masks={}, extra={})
    again = bs.predict(bare, tmp_path / "kept", model=module)
    assert again.scores == {}
    torch.testing.assert_close(torch.from_numpy(again.logits), torch.from_numpy(found.logits))


def test_predictions_that_do_not_fit_are_refused(folder, factories, tmp_path):
    bs.train(folder / "plain", **OPTIONS, model=f"{factories}:Sage", checkpoint=str(tmp_path / "kept"))
    wide = community_graph(width=5)
    cases = [
        (folder / "plain", None, r"holds a model of your own, own_factories:Sage; use model='package.module:factory'.* runs no code that"),
        (wide, f"{factories}:Sage", "takes 8 features of a vertex; graph 'communities' has 5: use a graph with 8 features"),
        (
            folder / "plain",
            f"{factories}:wider",
            r"layers\.0\.bias has shape \(9,\), in the checkpoint .* shape \(8,\); use the factory of the run",
        ),
        (folder / "plain", torch.nn.Identity(), r"does not take \(x, blocks\)"),
        (folder / "plain", PlainSage(Gnn("sage", [8, 8, 3])), r"layers\.0\.bias has none, in the checkpoint .* shape \(8,\)"),
        (folder / "plain", f"{factories}:NotFinite", "the logits of 300 vertices are not finite; use a checkpoint"),
    ]
    for graph, model, said in cases:
        with pytest.raises(UsageError, match=said):
            bs.predict(graph, tmp_path / "kept", model=model)
    bs.train(folder / "plain", **OPTIONS, checkpoint=str(tmp_path / "ours"))
    with pytest.raises(UsageError, match="holds a model of ours, sage; leave model out"):
        bs.predict(folder / "plain", tmp_path / "ours", model=f"{factories}:Sage")


def test_a_module_is_trained_in_place_and_frozen_weights_stay(folder):
    module = PlainSage(Gnn("sage", [8, 8, 3], seed=3))
    module.weights[0].requires_grad_(False)
    before = [weight.clone() for weight in module.weights]
    bs.train(folder / "plain", **OPTIONS, model=module, weight_decay=0.1)
    assert [torch.equal(a, b) for a, b in zip(module.weights, before, strict=True)] == [True] + 5 * [False]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "own_factories:no_module"}, r"returned a str; return a torch\.nn\.Module"),
        ({"model": "own_factories:without_widths"}, r"without_widths\(8, 3\): .*takes 0 positional arguments.*; use a factory that takes"),
        (
            {"model": "own_factories:failing"},
            r"the factory, called with 8 and 3, raised KeyError: 'hidden' \(own_factories\.py, line \d+\)",
        ),
        ({"model": "broken_factories:make"}, "got 'broken_factories:make', but its import raised SyntaxError: .*; mend it"),
        ({"model": ".own_factories:Sage"}, "use package.module:factory"),
        ({"model": "own_factories:missing"}, "has no attribute 'missing'; use package.module:factory"),
        ({"model": "no_such_package:make"}, "No module named 'no_such_package'"),
        ({"model": "own_factories:one_column_short"}, r"got torch.float32 of shape \(40, 2\) from .*; return logits of shape \(40, 3\)"),
        ({"model": "own_factories:NotFinite"}, r"the logits of \d+ vertices of the train split are not finite"),
        ({"model": "saeg"}, "model: got 'saeg'; did you mean 'sage'"),
        ({"model": "own_factories:Sage", "hidden": 7}, "hidden is an option of the models sage, sage-pool, gcn, gat"),
        ({"model": "own_factories:Sage", "method": "adaqp"}, "method 'adaqp' exchanges rows between the layers of the model"),
        ({"model": "own_factories:Sage", "method": "full", "layers": 2}, r"the module asked \[0\] times the blocks of layers 2 to 2"),
        ({"model": "own_factories:Sage", "method": "retexo"}, "method 'retexo' makes its own models"),
        ({"model": "own_factories:Sage", "task": "links"}, "task links decodes embeddings of our layers"),
        ({"model": Gnn("sage", [9, 8, 3])}, "the model has widths 9, 8, 3, but the graph 8 features; use widths 8, ..., 3"),
        ({"model": Gnn("sage", [8, 8, 3]), "hidden": 5}, "hidden: got 5, but the model has 8; leave the option out"),
        ({"model": PlainSage}, r"model: got the class PlainSage; use a torch\.nn\.Module that has been made"),
        ({"callbacks": 5}, "callbacks: got a int; use a list of bulksample.Callback"),
        ({"overwrite": "no"}, "overwrite must be true or false; got 'no'"),
        ({"comm": 3}, r"comm: got a int; use what bulksample\.init\(\) returns"),
        ({"model": 7}, "model: got a int; use a torch.nn.Module that has been made, the name of a model"),
        ({"model": torch.nn.Identity()}, "model torch.nn.*:Identity: it has no weights, so there is nothing to train"),
        ({"model": torch.nn.Linear(8, 3).requires_grad_(False)}, "all of its weights are frozen, so there is nothing to train"),
        ({"model": torch.nn.Linear(8, 3)}, r"forward\(input: .*\) -> .* does not take \(x, blocks\): .*; write forward\(self, x, blocks\)"),
        ({"model": torch.nn.LazyLinear(3)}, "weight has no shape before a first call; give its layer the input width"),
        ({"model": torch.nn.Linear(8, 3, device="meta")}, "weight has no values, on device meta; use a dense tensor"),
        ({"model": torch.nn.Linear(8, 3, dtype=torch.complex64)}, "weights of torch.complex64 do not travel between ranks"),
        ({"model": torch.nn.DataParallel(torch.nn.Linear(8, 3))}, "got a DataParallel: use the module inside, .module"),
        ({"model": Gnn("sage", [8, 8, 3]), "method": "retexo"}, "method 'retexo' makes its own models"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(folder, factories, options, said):
    with pytest.raises(UsageError, match=said):
        bs.train(folder / "plain", **{**OPTIONS, **options})


def test_methods_that_exchange_rows_train_a_stack_of_our_layers(folder):
    gnn = Gnn("gcn", [8, 8, 3], seed=5, dropout=0.2)
    before = weights_of(type("Held", (), {"model": gnn}))
    losses = trained(folder / "plain", None, gnn, method="full")[1]
    assert losses[-1] < losses[0]
    assert not torch.equal(before, weights_of(type("Held", (), {"model": gnn})))


def test_options_of_a_stack_of_our_layers_are_read_from_it():
    module = Gnn("sage", [6, 24, 24, 3], dropout=0.25)
    asked = options_beside(module, {"lr": 0.5})
    assert {"model": "sage", "layers": 3, "hidden": 24, "dropout": 0.25, "lr": 0.5}.items() <= asked.items()
    with pytest.raises(UsageError, match="hidden: got 6, but the model has 24; leave the option out"):
        options_beside(module, {"hidden": 6})
    assert "hidden" not in options_beside(Gnn("sage", [6, 3]), {})


def test_weights_of_half_precision_are_refused(folder):
    with pytest.raises(UsageError, match=r"weights of torch\.bfloat16 do not travel between ranks; use float32, and precision bf16"):
        bs.train(folder / "plain", **OPTIONS, model=PlainSage(Gnn("sage", [8, 8, 3])).bfloat16())


def test_ranks_whose_models_differ_are_told_so(folder):
    def rank(comm):
        return trained(folder / "plain", comm, PlainSage(Gnn("sage", [8, 8 + comm.rank, 3])), graph="replicated")

    with pytest.raises(UsageError, match=r"the ranks do not agree on the parameters of model .*PlainSage: .*\(8, 8\).*\(8, 9\)"):
        on_threads(2, rank)


@pytest.mark.long
def test_ranks_of_a_launcher_train_together_without_being_told(folder, tmp_path):
    code = f"""
import bulksample as bs
report = bs.train({str(folder / "plain")!r}, fanouts=[4], epochs=1, batch_size=50, threads=1)
open({str(tmp_path)!r} + f"/{{bs.init().rank}}", "w").write(f"{{report['ranks']}} {{report['train_loss']}}")
"""
    ended = run_ranks(2, code)
    assert ended.code == 0, ended
    ranks = [(tmp_path / str(rank)).read_text() for rank in range(2)]
    assert ranks[0] == ranks[1]
    assert ranks[0].startswith("2 ")


def test_it_is_scored_without_dropout(folder):
    """Weights that hardly move have the score of exact inference after every epoch; with dropout, scores would scatter."""

    class Dropped(PlainSage):
        def forward(self, x, blocks):
            return torch.nn.functional.dropout(super().forward(x, blocks), 0.7, self.training)

    recorder = Recorder()
    options = {**OPTIONS, "lr": 1e-12, "epochs": 3, "eval_every": 1}
    module = Dropped(Gnn("sage", [8, 8, 3], seed=3))
    make_trainer(TrainConfig.of(**options_beside(module, options)), folder / "plain", None, [recorder], module=module).run()
    whole = trained(folder / "plain", None, Gnn("sage", [8, 8, 3], seed=3), lr=1e-12)[2]["train_accuracy"]
    assert {line["train_accuracy"] for line in recorder.lines} == {whole}
    assert module.training


class Buffered(PlainSage):
    """Keeps a batch norm with a cumulative mean, a table that never changes, and the rows of its last mini-batch."""

    def __init__(self, gnn, rank):
        super().__init__(gnn)
        self.norm = torch.nn.BatchNorm1d(8, momentum=None)
        self.norm.num_batches_tracked.fill_(5 * rank)
        self.register_buffer("table", torch.arange(4) + 2**40 * (rank + 1))
        self.register_buffer("flags", torch.tensor([rank == 0, True]))
        self.register_buffer("rows", torch.tensor(float(rank)))

    def forward(self, x, blocks):
        if self.training:
            self.rows = torch.tensor(float(len(x)))
        return super().forward(self.norm(x), blocks)


@pytest.mark.parametrize("options", [{}, {"method": "random-tma", "interval": "2"}], ids=["sync", "random-tma"])
def test_buffers_are_equal_on_all_ranks_after_training(folder, options):
    """All start from rank 0's buffers; statistics are averaged, and a table of numbers beyond float32 stays exact."""

    def rank(comm):
        module = Buffered(Gnn("sage", [8, 8, 3], seed=3), comm.rank)
        steps = trained(folder / "plain", comm, module, eval_every=3, **options)[2]["steps"]
        return {name: buffer.clone() for name, buffer in module.named_buffers()}, steps

    ranks = on_threads(3, rank)
    for buffers, _ in ranks:
        assert buffers["table"].tolist() == [2**40 + i for i in range(4)]
        assert buffers["flags"].tolist() == [True, True]
        for name, buffer in buffers.items():
            assert torch.equal(buffer, ranks[0][0][name]), name
    assert ranks[0][0]["norm.num_batches_tracked"] == ranks[0][1] or options
    assert ranks[0][0]["norm.running_var"].ne(1).all()


class Odd(PlainSage):
    """Does what it should not, on one rank or on all."""

    def __init__(self, does, when=True):
        super().__init__(Gnn("sage", [8, 8, 3], seed=3))
        self.does, self.when = does, when

    def forward(self, x, blocks):
        logits = super().forward(x, blocks)
        return self.does(logits, self) if self.when else logits


def detached(logits, module):
    return logits.detach()


def raising(logits, module):
    raise IndexError("no such thing")


def failing_to_differentiate(logits, module):
    kept = logits.exp()
    return kept.add_(kept.square().sum()).exp_().mul_(kept)


ODD = {
    "detached": (detached, r"the logits of forward\(x, blocks\) have no gradient; compute them from the weights"),
    "raising": (raising, r"forward\(x, blocks\) raised IndexError: no such thing \(test_own_model\.py, line \d+\)"),
    "backward": (failing_to_differentiate, "its backward pass raised RuntimeError: one of the variables needed for gradient computation"),
    "integers": (lambda logits, _: logits.argmax(1), r"got torch.int64 of shape \(\d+,\) from forward\(x, blocks\); return logits"),
    "pair": (lambda logits, _: (logits, None), r"got a tuple from forward\(x, blocks\); return logits"),
    "not finite": (lambda logits, _: logits / 0, r"got logits that are not finite from forward\(x, blocks\) in epoch 0, step 0; mend"),
    "in evaluation": (
        lambda logits, module: logits if module.training else logits[1:],
        r"got torch.float32 of shape \(\d+, 3\) from forward",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_a_module_that_fails_on_one_rank_is_named_on_all_of_them(folder, name):
    does, said = ODD[name]

    def rank(comm):
        with pytest.raises(UsageError, match=f"rank 1: .*{said}") as caught:
            trained(folder / "plain", comm, Odd(does, when=comm.rank == 1), graph="partitioned")
        return str(caught.value)

    assert len(set(on_threads(2, rank))) == 1


@pytest.mark.parametrize("method", ["sync", "random-tma"])
def test_a_module_that_fails_alone_is_named_without_a_rank(folder, method):
    with pytest.raises(UsageError, match=r"^model .*Odd: forward\(x, blocks\) raised IndexError") as caught:
        bs.train(folder / "plain", **{**OPTIONS, "method": method}, model=Odd(raising))
    assert isinstance(caught.value.__cause__.__cause__, IndexError)


def test_ranks_whose_buffers_differ_are_told_so(folder):
    def rank(comm):
        module = PlainSage(Gnn("sage", [8, 8, 3]))
        module.register_buffer("table", torch.zeros(2 + comm.rank))
        return trained(folder / "plain", comm, module, graph="replicated")

    with pytest.raises(UsageError, match=r"the ranks do not agree on the buffers of model .*PlainSage: .*\(2,\).*\(3,\)"):
        on_threads(2, rank)

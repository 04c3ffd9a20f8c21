"""In every context (method, model, sampler, task, placement, kind of graph) an option is read, or the user is told that it is not.

One short run of each context notes the options that are read after validation. Whoever sets one of the others must be refused or warned.
Reading is not yet an effect, so the long test sets each option, and holds the figures of the run against those of the run without it.
Contexts have two ranks or more: what one rank does not need, the same command needs on two.
"""

import contextlib
import hashlib
import threading
from dataclasses import replace

import pytest
from plain import graph, labelled_pairs
from planted_relations import planted
from recorder import Recorder

from bulksample import UsageError
from bulksample.config.train import SampleConfig
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.methods import readers
from bulksample.methods.config import TrainConfig
from bulksample.methods.readers import READERS, Reader, unread_warning
from bulksample.methods.run import make_trainer

PLAIN = {"threads": 1, "fanouts": (3, 2), "hidden": 4, "batch_size": 4, "epochs": 2}
RELATIONAL = {"threads": 1, "fanouts": (3, 3), "model": "hetero-sage", "hidden": 4, "batch_size": 30, "epochs": 2}
GRAPPA, LINKS = {"method": "grappa", "swap_every": 1}, {"task": "links"}
CONTEXTS = {  # name: (ranks, graph, options)
    "sync": (2, graph, {}),
    "sync-partitioned": (2, graph, {"graph": "partitioned"}), "sync-features": (2, graph, {"features": "partitioned"}),
    "gat": (2, graph, {"model": "gat"}), "gcn": (2, graph, {"model": "gcn"}), "one layer": (2, graph, {"fanouts": (3,)}),
    "fixed bulks": (2, graph, {"bulk_size": 2}), "ladies": (2, graph, {"sampler": "ladies"}), "shadow": (2, graph, {"sampler": "shadow"}),
    "saint": (2, graph, {"sampler": "saint"}), "not scored": (2, graph, {"evaluate": "none"}),
    "sampled scores": (2, graph, {"evaluate": "sampled"}), "links": (2, "links", LINKS),
    "edges": (2, graph, {"task": "edges", "edge_labels": "edges.npz"}),
    "hetero": (2, planted, RELATIONAL), "times": (2, lambda: planted(times=True), RELATIONAL),
    "hetero-features": (2, planted, {**RELATIONAL, "features": "partitioned"}),
    **{f"hetero-{method}": (4, planted, {**RELATIONAL, "featureless": "constant", "method": method}) for method in ("grappa", "cofree")},
    "full": (2, graph, {"method": "full"}), "bns": (2, graph, {"method": "bns"}), "cofree": (2, graph, {"method": "cofree"}),
    "cofree-masks": (2, graph, {"method": "cofree", "drop_edge": 0.3}), "adaqp": (2, graph, {"method": "adaqp", "reassign_every": 2}),
    **{f"adaqp-{bits}": (2, graph, {"method": "adaqp", "bits": bits}) for bits in ("8", "16", "32", "uniform", "random")},
    "retexo": (2, graph, {"method": "retexo"}), "retexo-federated": (2, graph, {"method": "retexo-federated"}),
    "grappa": (4, graph, GRAPPA), "grappa-full": (4, graph, {**GRAPPA, "full_graph": True}),
    "grappa-base": (4, graph, {"method": "grappa", "view": "base"}),
    "grappa-unweighted": (4, graph, {**GRAPPA, "seed_weights": "none"}),
    "grappa-tree": (4, graph, {**GRAPPA, "seed_weights": "tree", "chunking": "fresh"}),
    "random-tma": (3, graph, {"method": "random-tma"}), "super-tma": (3, graph, {"method": "super-tma"}),
    "psgd-pa": (3, graph, {"method": "psgd-pa"}), "llcg": (3, graph, {"method": "llcg"}),
    "llcg-uncorrected": (3, graph, {"method": "llcg", "server_steps": 0}),
}  # fmt: skip
OTHER = {  # another value of every option that a run reads
    "model": "gcn", "layers": 4, "hidden": 8, "heads": 2, "dropout": 0.2, "input_dropout": 0.3, "batch_norm": True, "layer_norm": True,
    "sampler": "labor", "fanouts": (2, 2), "sampler_options": {"replace": True}, "frontier": "new", "batch_size": 3, "bulk_size": 3,
    "memory_budget": 1000, "seeds": "val", "seed_locality": 2, "drop_last": True, "steps_per_epoch": 7, "balance_classes": True,
    "sampling_weights": "weights.npy", "edge_labels": "others.npz", "target_relation": "paper:cites:paper",
    "task": "links", "target": "regression", "decoder": "mlp",
    "exclude_targets": "self", "label": "asked", "feature_norm": "l1", "feature_storage": "bf16", "target_type": "author",
    "seed_times": "asked", "time_by": "edges", "strategy": "last", "strict": True, "featureless": "constant", "epochs": 1, "lr": 0.1,
    "weight_decay": 0.5, "lr_schedule": "cosine", "warmup": "3", "lr_end_factor": 0.5, "lr_step_size": 3, "lr_gamma": 0.5,
    "clip_norm": 0.01, "metric": "f1", "evaluate": "none", "eval_every": 0, "eval_splits": ("val",), "eval_fanouts": (1, 1),
    "eval_seeds": 3, "eval_memory": 10, "patience": 1, "graph": "partitioned", "topology": "partitioned", "features": "host",
    "replication": 2, "feature_replication": 2, "grid_order": "rows", "exchange": "rows", "partition": "random", "virtual_ranks": 8,
    "form": "naive", "overlap": False, "feature_codec": "int8", "cache_bytes": 100, "cache_by": "frequency", "fetch_together": 2,
    "gradient_codec": "bf16", "backend": "reference", "threads": 2, "check": "full", "sampling_threads": 0, "device": "cpu",
    "precision": "bf16", "device_comm": "host", "checkpoint": "folder", "checkpoint_every": 1, "resume": "folder", "seed": 3,
    "bits": "4", "reassign_every": 3, "variance_weight": 0.9, "noise_weights": "squared_sum", "links": "measured", "message_header": "fp32",
    "message_rounding": "nearest", "message_coding": "difference", "boundary_share": 0.5, "vertex_cut": "random", "drop_edge": 0.5,
    "edge_masks": 3, "refine": 1, "client_vertices": 3, "view": "strict", "view_chunks": 3, "chunking": "fresh", "swap_every": 2,
    "halo_rows": 1, "seed_weights": "batch", "weight_hops": 1, "weight_cap": 0.3, "shrink": 0.5, "full_graph": True, "interval": "1",
    "interval_growth": 2.0, "average_by": "vertices", "lost_parts": 1, "clusters": 12, "server_steps": 3, "server_lr": 0.3,
    "tolerate_failures": True, "trainers": 2, "max_update": 2.0, "grace": 2.0, "redivide_after": 2.0, "listen": "127.0.0.1:1",
    "token_file": "file", "join": "127.0.0.1:1", "method": "full", "allocator": "system",
    "input_layer": "gathered",
}  # fmt: skip
AROUND = {"timeout", "metrics", "track", "quiet"}  # read by what makes the communicator and the output of a run
READ_IN_EACH = {"method"}
NO_FIGURE = {  # of effects that these figures do not show; each has a test of its own, see `noticed_by.py`
    "backend", "threads", "sampling_threads", "device", "device_comm", "overlap", "grid_order", "graph", "topology", "features", "check",
    "patience", "checkpoint", "checkpoint_every", "resume", "exchange", "precision", "virtual_ranks", "task", "method", "model", "layers",
    "fanouts", "tolerate_failures", "join", "trainers", "listen", "grace", "redivide_after", "max_update", "token_file", "allocator",
    "input_layer", "sampling_weights", "edge_labels",
}  # fmt: skip
ALIKE = {  # other values that change nothing on these graphs, by design or by chance
    "target_type", "time_by", "layer_norm", "vertex_cut", "lost_parts", "message_coding", "eval_every", "evaluate", "metric", "label",
    "swap_every", "reassign_every", "frontier", "sampler", "bulk_size", "memory_budget", "fetch_together", "cache_by",
    "links", "noise_weights",
    "variance_weight", "edge_masks", "average_by", "interval_growth", "client_vertices",
    "drop_last",  # the seeds fill all mini-batches
    "lr_schedule",  # of two steps the second, whose weights are not always the best
}  # fmt: skip


def config_of(options):
    return TrainConfig.of(**{**({} if options.get("model", "").startswith("hetero") else PLAIN), **options})


def run(name, links, more=(), only_make=False):
    """Train in a context; return figures of each rank."""
    ranks, source, options = CONTEXTS[name]
    source = links if source == "links" else source()
    config = config_of({**options, **dict(more)})

    def on_rank(comm):
        made = make_trainer(config, source, comm, [seen := Recorder()], edge_labels=labelled_pairs())
        if only_make:
            return None
        report = made.run()
        sent = {kind: count for kind, count in report["bytes_sent"].items() if kind not in ("control", "total")}
        weights = hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in made.model.parameters())).hexdigest()
        scores = {key: value for key, value in report.items() if key.startswith(("test_", "val_", "train_"))}
        return seen.losses, sent, weights, scores, report["held_bytes"], report["evaluation"], report.get("bulk_size")

    return [on_rank(SerialComm())] if ranks == 1 else on_threads(ranks, on_rank)


@contextlib.contextmanager
def noted(monkeypatch):
    """Collect the names of the options that are read while no configuration is being checked."""
    names, checking, original, made = set(), threading.local(), TrainConfig.__getattribute__, TrainConfig.made

    def read(self, name):
        if name in TrainConfig.model_fields and not getattr(checking, "now", False):
            names.add(name)
        return original(self, name)

    def checked(cls, *arguments):
        checking.now = True
        try:
            return made(*arguments)
        finally:
            checking.now = False

    with monkeypatch.context() as patch:
        patch.setattr(TrainConfig, "__getattribute__", read)
        patch.setattr(TrainConfig, "made", classmethod(checked))
        yield names


def is_told(name, option, links):
    """True if another value of an option is refused or brings a warning in a context."""
    more = {option: OTHER[option]}
    try:
        config = config_of({**CONTEXTS[name][2], **more})
        if f"<{option}>" in unread_warning(config, {option: f"<{option}>"}):
            return True
        run(name, links, more, only_make=True)
    except UsageError:
        return True
    return False


def silent(name, read, links):
    """Return the options that a context neither reads nor tells of."""
    left = set(TrainConfig.by_name()) - read - AROUND - READ_IN_EACH
    return sorted(option for option in left if not is_told(name, option, links))


def test_every_option_has_another_value():
    assert set(OTHER) | AROUND == set(TrainConfig.by_name())
    assert all(value != TrainConfig.model_fields[option].default for option, value in OTHER.items())


@pytest.mark.parametrize("name", [name if i % 3 == 0 else pytest.param(name, marks=pytest.mark.long) for i, name in enumerate(CONTEXTS)])
def test_what_a_context_does_not_read_is_refused_or_warned_of(name, links, monkeypatch):
    with noted(monkeypatch) as read:
        run(name, links)
    assert len(read) > 30
    assert silent(name, read, links) == []


def test_an_option_without_its_condition_is_found(links, monkeypatch):
    """CoFree reads the number of its masks only if they leave out edges."""
    with noted(monkeypatch) as read:
        run("cofree", links)
    monkeypatch.delitem(readers.READERS, "edge_masks")
    assert silent("cofree", read, links) == ["edge_masks"]


@pytest.mark.long
@pytest.mark.parametrize("name", CONTEXTS)
def test_what_a_context_takes_changes_its_figures(name, links):
    before, same = run(name, links), []
    config = config_of(CONTEXTS[name][2])
    for option in sorted(set(OTHER) - NO_FIGURE - ALIKE):
        if OTHER[option] == getattr(config, option) or is_told(name, option, links):
            continue
        if run(name, links, {option: OTHER[option]}) == before:
            same.append(option)
    assert same == []


def _refused():
    """(options in which it is not read, option) of every row of `READERS`."""
    where = {
        "exchange": {"method": "full"}, "form": {"method": "sync"}, "overlap": {"method": "sync"}, "grid_order": {"method": "random-tma"},
        "feature_replication": {"method": "psgd-pa"}, "memory_budget": {"bulk_size": 2}, "heads": {"model": "sage"}, "seeds": LINKS,
        "label": LINKS, "eval_memory": LINKS, "edge_masks": {"method": "cofree"}, "server_lr": {"method": "llcg", "server_steps": 0},
        **{one: {"method": "grappa", "view": "base"} for one in ("view_chunks", "swap_every")},
        **{one: {"method": "grappa", "seed_weights": "none"} for one in ("weight_hops", "weight_cap", "shrink")},
        **{one: {"method": "adaqp", "bits": "8"} for one in ("reassign_every", "variance_weight", "noise_weights", "links")},
        **{one: {"method": "adaqp", "bits": "16"} for one in ("message_header", "message_rounding")},
        **{one: {"lr_schedule": "constant"} for one in ("lr_end_factor", "lr_step_size", "lr_gamma")},
        "clusters": {"method": "super-tma", "partition": "parts.npy"}, "input_layer": {"method": "full"},
        "drop_last": {"method": "full"}, "balance_classes": {"method": "bns"}, "sampling_weights": LINKS,
        "steps_per_epoch": {"method": "grappa", "full_graph": True},
    }  # fmt: skip
    return [pytest.param(where[option], option, id=option) for option in READERS]


@pytest.mark.parametrize(("options", "option"), _refused())
def test_refusals_name_the_option_and_where_it_is_read(options, option):
    with pytest.raises(UsageError, match=rf"^{option} is for .+; got {option} .+: leave it out$"):
        TrainConfig.of(**{**options, option: OTHER[option]})


def test_no_condition_of_an_option_hangs_on_another_such_option():
    """`compare` leaves out of a file what a method does not read, and asks for that without all these options."""
    assert {one for reader in READERS.values() for one in reader.beside} & set(READERS) == set()
    assert all(isinstance(reader, Reader) for reader in READERS.values())


@pytest.mark.parametrize("options", [
    {"partition": "random"}, {"grid_order": "rows"}, {"sampler": "saint", "frontier": "new"}, {"sampler": "shadow", "frontier": "new"},
])  # fmt: skip
def test_options_of_block_rows_and_of_nested_blocks_need_them(options):
    with pytest.raises(UsageError, match=r"is for (block rows|samplers of nested blocks)"):
        make_trainer(config_of(options), graph())


def test_patience_needs_scores_to_wait_for():
    whole = graph()
    with pytest.raises(UsageError, match=r"patience 2 counts scores of val, and graph .* has no val split; use patience 0"):
        make_trainer(config_of({"patience": 2}), replace(whole, masks={name: whole.masks[name] for name in ("train", "test")}))


@pytest.mark.parametrize(("options", "given", "told"), [
    ({"fanouts": (3,)}, "hidden", "a model of one layer has no hidden layers; without effect: hidden"),
    ({"sampler": "full"}, "fanouts", "sampler full reads of fanouts how many there are, its layers; write each as -1"),
    ({"method": "grappa", "full_graph": True}, "sampler", "method 'grappa' with full_graph samples nothing; without effect: sampler"),
    ({"method": "full"}, "batch_size", "method 'full' samples nothing; without effect: batch_size"),
    ({"method": "full", "sampler": "ladies"}, "sampler", "method 'full' samples nothing; of sampler it reads that means are by edge"),
    ({"method": "full", "evaluate": "sampled"}, "batch_size", ""),
])  # fmt: skip
def test_options_of_several_runs_bring_a_warning(options, given, told):
    warning = unread_warning(config_of(options), {given: given})
    assert warning.startswith(told)
    assert bool(warning) == bool(told)


@pytest.mark.parametrize("options", [{"bulk_size": 2, "memory_budget": 1000}, {"graph": "partitioned", "feature_replication": 2}])
def test_sampling_refuses_what_it_does_not_read(options):
    with pytest.raises(UsageError, match=r"^(memory_budget|feature_replication) is for "):
        SampleConfig.of(**options)

"""The options that are read in some runs only, and the runs that read them.

`TrainConfig` refuses such an option elsewhere, if it differs from its default. Options that people keep for several methods, or for several
numbers of layers, bring a warning instead. Whole groups of options name their methods themselves; see `Options.methods`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..config import MODELS
from . import METHODS
from .options import AVERAGING

Run = Any  # a `TrainConfig`, whose module imports this one

WHOLE_GRAPH = ("full", "retexo", "retexo-federated", "cofree", "bns", "adaqp")  # methods that sample nothing
OF_SAMPLING = ("sampler", "sampler_options", "frontier", "batch_size", "bulk_size", "memory_budget")  # options that these do not read
_OF_HIDDEN_LAYERS = ("hidden", "heads", "dropout", "batch_norm", "layer_norm")
_LAYERED = ("full", "bns", "adaqp")
_CHOSEN_BITS = ("uniform", "adaptive")


class Reader(NamedTuple):
    """The runs that read an option: `where` in words, `reads` of a configuration, and the options `beside` that decide, for the message."""

    where: str
    reads: Callable[[Run], bool]
    beside: tuple[str, ...] = ("method",)


_SHARED_ROWS = Reader("rows that ranks share: all methods but those with trainers", lambda run: run.method not in AVERAGING)
_WEIGHED_BITS = Reader("bits that weigh noise against time: uniform and adaptive", lambda run: run.bits in _CHOSEN_BITS, ("bits",))
_MINIBATCHES = Reader(
    "mini-batches: all methods but " + ", ".join(WHOLE_GRAPH) + ", and grappa without full_graph",
    lambda run: run.method not in WHOLE_GRAPH and not run.full_graph, ("method", "full_graph"),
)  # fmt: skip
_DRAWN_SEEDS = Reader(
    "mini-batches of vertices: task nodes, all methods but " + ", ".join(WHOLE_GRAPH) + ", and grappa without full_graph",
    lambda run: run.task == "nodes" and _MINIBATCHES.reads(run), ("method", "task"),
)  # fmt: skip
_ENDS = Reader("rates that fall to the end of a run: lr_schedule linear and cosine", lambda run: run.follows_epochs, ("lr_schedule",))
_FALLS = Reader("rates that fall every few epochs: lr_schedule step", lambda run: run.lr_schedule == "step", ("lr_schedule",))
_ROUNDED = Reader("rounded messages: bits below 16", lambda run: run.bits not in ("16", "32"), ("bits",))  # these are not rounded
_WEIGHED_SEEDS = Reader("weights of seeds: seed_weights node, batch and tree", lambda run: run.seed_weights != "none", ("seed_weights",))

READERS = {
    "exchange": Reader(
        "draws from rows of other ranks: method sync, or evaluate sampled of full, bns, adaqp, cofree and grappa",
        lambda run: run.method == "sync" or (run.evaluation == "sampled" and run.method not in AVERAGING),
    ),
    "form": Reader(
        "passes over the whole graph by a model of one type: methods full, bns, adaqp, cofree, or grappa with full_graph",
        lambda run: (run.method in (*_LAYERED, "cofree") or run.full_graph) and not run.is_relational,
    ),
    "overlap": Reader(
        "messages that travel while a rank computes: methods full, bns, adaqp, grappa, or retexo with refine",
        lambda run: run.method in (*_LAYERED, "grappa") or run.refine > 0,
    ),
    "grid_order": _SHARED_ROWS, "feature_replication": _SHARED_ROWS,
    "heads": Reader("attention: models gat and hetero-gat", lambda run: run.model in ("gat", "hetero-gat"), ("model",)),
    "memory_budget": Reader(
        "bulks of a size to choose: bulk_size auto",
        lambda run: run.bulk_size == "auto" or (run.method == "llcg" and run.server_steps > 0), ("bulk_size",),
    ),
    "input_layer": _MINIBATCHES,
    "balance_classes": Reader(
        "mini-batches of classes: tasks nodes and edges, all methods but " + ", ".join(WHOLE_GRAPH) + ", and grappa without full_graph",
        lambda run: run.task != "links" and _MINIBATCHES.reads(run), ("method", "task"),
    ),
    "sampling_weights": _DRAWN_SEEDS,
    "drop_last": _MINIBATCHES, "steps_per_epoch": _MINIBATCHES,
    "seeds": Reader("splits of examples: tasks nodes and edges", lambda run: run.task != "links", ("task",)),
    "label": Reader("labels: tasks nodes and edges", lambda run: run.task != "links", ("task",)),
    "eval_memory": Reader(
        "passes over the whole graph that score vertices: task nodes, all methods but retexo and retexo-federated",
        lambda run: run.task == "nodes" and not run.method.startswith("retexo"), ("method", "task"),
    ),
    "reassign_every": Reader(
        "bits that are chosen anew: bits random, uniform and adaptive", lambda run: run.bits in ("random", *_CHOSEN_BITS), ("bits",)
    ),
    "variance_weight": _WEIGHED_BITS, "noise_weights": _WEIGHED_BITS, "links": _WEIGHED_BITS,
    "message_header": _ROUNDED, "message_rounding": _ROUNDED,
    "edge_masks": Reader("masks that leave out edges: drop_edge above 0", lambda run: run.drop_edge > 0, ("drop_edge",)),
    "view_chunks": Reader("views of several chunks: view strict and halo", lambda run: run.view != "base", ("view",)),
    "swap_every": Reader(
        "views that change: view strict and halo, or chunking fresh",
        lambda run: run.view != "base" or run.chunking == "fresh", ("view", "chunking"),
    ),
    "weight_hops": Reader(
        "weights by coverage: seed_weights node and batch", lambda run: run.seed_weights in ("node", "batch"), ("seed_weights",)
    ),
    "weight_cap": _WEIGHED_SEEDS, "shrink": _WEIGHED_SEEDS,
    "clusters": Reader(
        "a partition that the method makes: partition block, or redivide_after",
        lambda run: run.partition == "block" or run.redivide_after is not None, ("partition",),
    ),
    "lr_end_factor": _ENDS, "lr_step_size": _FALLS, "lr_gamma": _FALLS,
    "server_lr": Reader("steps of the server: server_steps above 0", lambda run: run.server_steps > 0, ("server_steps",)),
}  # fmt: skip


def unread(run: Run) -> tuple[str, ...]:
    """Return the options of `READERS` that nothing in a run reads."""
    return tuple(name for name, reader in READERS.items() if not reader.reads(run))


def check_read(run: Run) -> None:
    """Raise `ValueError` for an option that is set, and that nothing in the run reads."""
    for name in unread(run):
        if (found := getattr(run, name)) != type(run).model_fields[name].default:
            reader = READERS[name]
            values = [(one, getattr(run, one)) for one in reader.beside]
            beside = " and ".join(f"{one} {value!r}" if one == "method" else f"{one} {value}" for one, value in values)
            raise ValueError(f"{name} is for {reader.where}; got {name} {found} with {beside}: leave it out")


def unread_warning(run: Run, spelled: Mapping[str, str]) -> str:
    """Return a warning about options that a run does not read, and that one configuration for several runs may hold; empty without any.

    These are options of sampling for a method that samples nothing, the numbers of fanouts for a sampler without any, and options of
    hidden layers for a model without such. `spelled` maps the names of the options that the user set to what the user wrote.
    """
    return "; ".join(filter(None, (warning(run, spelled) for warning in (_without_samples, _without_fanouts, _without_hidden_layers))))


def _without_samples(run: Run, spelled: Mapping[str, str]) -> str:
    if not (run.method in WHOLE_GRAPH or run.full_graph):
        return ""
    from ..training.setup import make_sampler

    scored = ("batch_size",) if run.evaluation == "sampled" else ()  # sampled scores take mini-batches of this size
    weighing = ("sampler", "sampler_options") if make_sampler(run).estimates_weighted_means else ()
    named = [text for name, text in spelled.items() if name in (*OF_SAMPLING, "fanouts") and name not in (*scored, *weighing)]
    weighs = [text for name, text in spelled.items() if name in weighing]
    flags = any(one.startswith("--") for one in spelled.values())
    method = f"--method {run.method}" if flags else f"method {run.method!r}"
    whole = f" with {spelled.get('full_graph', 'full_graph')}" if run.full_graph else ""
    said = []
    if named:
        said.append(f"without effect: {', '.join(named)}; they are for {', '.join(name for name in METHODS if name not in WHOLE_GRAPH)}")
    if "fanouts" in spelled:
        said.append(f"of {spelled['fanouts']} it reads how many there are, its layers")
    if weighs:
        said.append(f"of {' and '.join(weighs)} it reads that means are by edge weight")
    return "; ".join([f"{method}{whole} samples nothing", *said]) if said else ""


def _without_fanouts(run: Run, spelled: Mapping[str, str]) -> str:
    if "fanouts" not in spelled or run.sampler not in ("full", "saint") or run.method in WHOLE_GRAPH or set(run.fanouts) == {-1}:
        return ""
    return f"sampler {run.sampler} reads of {spelled['fanouts']} how many there are, its layers; write each as -1"


def _without_hidden_layers(run: Run, spelled: Mapping[str, str]) -> str:
    unread = _OF_HIDDEN_LAYERS if run.task == "nodes" else [name for name in _OF_HIDDEN_LAYERS if name != "hidden"]  # edges: of the ends
    named = [text for name, text in spelled.items() if name in unread]
    if run.layers > 1 or run.model not in MODELS or run.task == "links" or run.method.startswith("retexo") or not named:
        return ""
    return f"a model of one layer has no hidden layers; without effect: {', '.join(named)}; use more layers"

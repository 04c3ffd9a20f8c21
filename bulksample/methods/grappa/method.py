"""Grappa: every rank trains on its own part of the graph, and the ranks exchange only gradients.

    offline            p chunks of the vertices; rank r trains on the seeds of chunk r
    super-epoch t      rank r sees S = chunk r and c - 1 others, chosen anew in each (see `seen_chunks`)
    step               g = sum over ranks, seeds of w_v grad loss_v / sum of w_v     one all-reduce, the only traffic of an epoch

A step sends 2 (p - 1) 4 (|theta| + 7) bytes over p ranks (kind "gradients"): the gradient, sum of w, sum of w loss, stop requests,
n, sum of w**2, and the sum of the weights before and beyond a cap. The amount depends neither on the cut nor on features or fanouts.

Views
    strict   the induced subgraph of S          halo   also the edges into S from outside, with features      base   c = 1, strict
Chunks
    static   block rows, as --partition makes them       fresh   drawn anew in every super-epoch
Weights, normalised over the step (see `seed_weights`)
    node     coverage over all hops of each seed        batch   the mean of those over the seeds of a rank in a step
    tree     Horvitz-Thompson; exact                    none    uniform
shrunk to (1 - lambda) + lambda w, with lambda given or the effective share of the seeds.

A graph of several types is divided type by type or by a partitioner of all its relations, and its parts have all relations. Coverage is
the mean over the relations into a vertex, as its new row is their sum, and a tree has a factor for each row and relation.

With `tree` and `fresh` the gradient tends to that of neighbor-sampled training on the whole graph, with a bias of O(1 / seeds of a
step). The other weights are first-order corrections. With static chunks a tree that touches two or more other chunks may be
in no strict view, and no weight corrects for that. With one rank this is `sync`, or with --full-graph `full`, to the bit.

The published code uses the coverage of the first hop alone, which is near 1 with a halo; here coverage spans all hops.

Xu, Siebenbrunner, Bindschaedler, "Grappa: gradient-only communication for scalable graph neural network training",
arXiv 2602.01872.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakMethod

import numpy as np
import torch

from ...backends.base import Backend
from ...data.random_words import Words
from ...errors import UsageError
from ...graph.labels import as_numbers, has_label
from ...nn.losses import label_shares, seed_losses
from ...rng import Substream
from ...training.batches import BatchSource, StepBatch
from ...training.context import TrainingContext
from ...training.loaders import PART_SEED, IsolatedBatches, equal_steps, part_loader, steps_of
from ...training.method import Labelled, labelled_logits
from ...views.local import FullPass, LocalPart, VisibleParts
from ..config import TrainConfig
from ..full import require_single_precision
from ..part_method import PartMethod
from .seed_weights import batch_scalar, capped, effective_share, shrunk, tree_weights, walk_coverage

_UNWEIGHTED = "mini-batches, with seed_weights none"


class Grappa(PartMethod):
    """Train on parts of the graph, with the loss of each seed weighted by how much of its neighbourhood the part covers."""

    name: ClassVar[str] = "grappa"

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.chunks = 1 if config.view == "base" else config.view_chunks
        self._coming: tuple[int, Callable[[], LocalPart]] | None = None  # a later super-epoch, and what waits for its view
        self._pass: FullPass | None = None  # the pass over all rows of the view
        self._totals = torch.zeros(5, dtype=torch.float64)  # over all steps: sum w, n, sum w**2, mass before and beyond the cap
        self._sent = {"initial": 0, "repartition": 0}
        self.samples = not config.full_graph
        if config.full_graph:
            require_single_precision(config)
            self.in_time = "gives each vertex one row in a pass over the view, and in time it has one for each seed's time", _UNWEIGHTED
        elif config.seed_weights != "none":
            self.in_time = "weighs seeds by all their neighbors, and in time they draw from those before", "seed_weights none"
        if config.seed_weights == "tree":
            self._check_trees()

    def _check_trees(self) -> None:
        config = self.config
        required: dict[str, tuple[Any, Any]] = {
            "chunking": (config.chunking, "fresh"), "sampler": (config.sampler, "sage"), "frontier": (config.frontier, "all"),
            "full_graph": (config.full_graph, False), "halo_rows": (config.halo_rows, None),
            "weighted draws": (bool(config.sampler_options.get("weighted", False)), False),
        }  # fmt: skip
        for option, (value, fits) in required.items():
            if value != fits:
                raise UsageError(f"tree weights are exact where every tree has a known chance; got {option} {value}: use {fits}")
        if config.shrink == "ess":
            raise UsageError("tree weights are known only when they are drawn; got shrink ess: use a number")

    # ---- views

    def view(self, context: TrainingContext) -> None:
        """Fetch the view of the first super-epoch; collective."""
        self.parts, self.comm = self.make_parts(context.view), context.comm
        self._turn = 0
        self.local = self._start_view(0)()
        self._sent["initial"] = context.ledger.run_bytes
        context.replace_view(self.local.view)

    def visible_parts(self, turn: int) -> VisibleParts:
        """Return the chunk of every vertex and the chunks that each rank sees in a super-epoch; local, and equal on every rank."""
        config, p = self.config, self.comm.size
        part = self.parts.blocks.part
        if config.chunking == "fresh":
            part = fresh_chunks(config.seed, turn, self.parts.n, p, self.parts.whole.adjacency.backend)
        return VisibleParts(part, seen_chunks(p, self.chunks, turn))

    def turn(self, epoch: int) -> int:
        """Return the super-epoch of an epoch."""
        every = self.config.swap_every
        constant = self.comm.size == 1 or (self.config.chunking == "static" and (self.chunks == 1 or self.chunks >= self.comm.size))
        return 0 if constant or not every else epoch // every

    def _start_view(self, turn: int) -> Callable[[], LocalPart]:
        """Start to fetch the view of a super-epoch; collective."""
        halo = self.config.halo_rows if self.config.view == "halo" else 0
        return self.parts.start(self.visible_parts(turn), halo)

    def _sent_so_far(self) -> int:
        return sum(sent.bytes for sent in self.comm.tally.values())

    def batches(self, context: TrainingContext) -> BatchSource:
        fixed = {"ranks": self.comm.size, "partition": zlib.crc32(self.parts.mark.tobytes())}
        coming = WeakMethod(self._drop_coming)  # no circle, which would keep the files of a store open

        def drop() -> None:
            if (drop_coming := coming()) is not None:
                drop_coming()

        self._batches = IsolatedBatches(fixed, drop)
        self._use_view(context)
        return self._batches

    def begin_round(self, context: TrainingContext) -> None:
        """Switch to the view of this epoch, and start to fetch the next view while this one is trained on."""
        before, epoch = self._sent_so_far(), context.epoch
        turn = self.turn(epoch)
        with context.ledger.phase("fetch"):
            if turn != self._turn:
                self._batches.train_on(None, 1)  # releases the old view before the next one is fetched
                self._pass, self._turn = None, turn
                self.local = self._view_of(turn)
                context.replace_view(self.local.view)
                self._use_view(context)
            following = self.turn(epoch + 1)
            if self.config.overlap and following != turn and epoch + 1 < self.config.epochs:
                self._coming = following, self._start_view(following)
        self._sent["repartition"] += self._sent_so_far() - before

    def _view_of(self, turn: int) -> LocalPart:
        """Return the view of a super-epoch; collective."""
        if self._coming is None or self._coming[0] != turn:
            self._drop_coming()
            return self._start_view(turn)()
        (_, wait), self._coming = self._coming, None
        return wait()

    def _drop_coming(self) -> None:
        """Wait for the view that is being fetched, if there is one, and release it."""
        if self._coming is not None:
            self._coming[1]()
            self._coming = None

    def _use_view(self, context: TrainingContext) -> None:
        """Set the steps and the seed weights of the current view; coverage weights sum three numbers over ranks (kind "control")."""
        config, local = self.config, self.local
        counts = np.bincount(self.visible_parts(self._turn).part[self.parts.seeds], minlength=self.comm.size)
        steps, sizes = equal_steps(counts.tolist(), config)
        if config.full_graph:
            self._pass = local.full_pass(config.form == "strong")
            self._batches.train_on(None, 1)
        else:
            loader = part_loader(context, self.comm.rank, sizes[self.comm.rank])
            self._batches.train_on(steps_of(context, loader, local.view), steps)
        self._raw, self._amount = self._coverage_weights()

    def _coverage_weights(self) -> tuple[np.ndarray, float]:
        """Return the weight of every seed before it is capped and shrunk, and lambda."""
        config, local, seeds = self.config, self.local, self.local.view.seeds
        linked = np.zeros(len(seeds), bool)
        for relation in local.relations:
            if relation.key[2] == local.target:
                linked |= relation.degrees[seeds] > 0
        amount = 1.0 if config.shrink in (None, "ess") else float(config.shrink)
        raw = np.ones(len(seeds))
        if config.seed_weights in ("node", "batch"):
            covered = walk_coverage(local.relations, config.weight_hops or config.layers)
            raw = covered[local.target][seeds] if local.target in covered else raw
            of_linked = raw[linked]
            n, total, squares = self.comm.allreduce(np.array([len(of_linked), of_linked.sum(), np.square(of_linked).sum()]), "control")
            raw = np.where(linked, raw * (n / total if total else 1.0), raw)
            amount = effective_share(n, total, squares) if config.shrink in (None, "ess") else amount
        return raw, amount

    # ---- a step

    def loss(self, context: TrainingContext, batch: StepBatch) -> tuple[torch.Tensor | None, float]:
        """Return the weighted sum of the losses, and the sum of the weights."""
        self._step_sums = torch.zeros(4)
        labelled = self._all_labelled(context) if self.config.full_graph else labelled_logits(context, batch)
        if labelled is None:
            return None, 0
        rows = labelled.rows
        if self.config.seed_weights == "tree":
            raw = self._tree_weights(batch)[rows]
        else:
            seeds = self.local.view.seeds if batch.minibatch is None else batch.minibatch.seeds
            raw = self._raw[np.searchsorted(self.local.view.seeds, seeds[rows])]
        weights = self._final(raw)
        losses, _ = seed_losses(self.target, labelled.logits, labelled.labels)
        total = float(weights.sum()) if self.target == "class" else float(weights @ label_shares(labelled.truth).numpy())
        return torch.sum(losses * context.compute.send(torch.from_numpy(weights.astype(np.float32)))), total

    def _all_labelled(self, context: TrainingContext) -> Labelled | None:
        """Return all labelled seeds with their logits, by one pass over the view."""
        view = self.local.view
        rows = np.flatnonzero(has_label(view.labels))
        if not len(rows):
            return None
        assert self._pass is not None
        logits = self._pass(context.model, context.whole_pass(PART_SEED * self.comm.rank))
        at, truth = view.seeds[rows].astype(np.int64), torch.from_numpy(as_numbers(view.labels[rows]))
        return Labelled(logits[context.compute.send(torch.from_numpy(at))], context.compute.send(truth), rows, truth)

    def _tree_weights(self, batch: StepBatch) -> np.ndarray:
        config, local = self.config, self.local
        assert batch.minibatch is not None
        replace, share = bool(config.sampler_options.get("replace", False)), min(1.0, self.chunks / self.comm.size)
        drawn, halo = batch.minibatch.on_host(), config.view == "halo"
        return tree_weights(drawn, local.target, local.relations, config.fanouts, replace, share, halo)

    def _final(self, raw: np.ndarray) -> np.ndarray:
        """Return the weights after cap and shrinkage, and keep their sums for the report."""
        cut, beyond = capped(raw, self.config.weight_cap)
        weights = shrunk(cut, self._amount)
        if self.config.seed_weights == "batch":
            weights = batch_scalar(weights)
        self._step_sums = torch.tensor([len(raw), float(np.square(weights).sum()), float(raw.sum()), beyond])
        return weights

    def combine_gradients(self, context: TrainingContext, sums: torch.Tensor) -> torch.Tensor:
        """Add gradients as `sync` does, with four more scalars: n, sum of w**2, and the sum of weights before the cap and beyond it."""
        summed = super().combine_gradients(context, torch.cat([sums, context.compute.send(self._step_sums)]))
        self._totals = self._totals.to(summed.device) + torch.cat([summed[:1], summed[3:]]).double()
        return summed[:3]

    def end_stage(self, context: TrainingContext, stage: int) -> None:
        self._drop_coming()

    # ---- state and report

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"totals": self._totals.cpu()}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        self._totals = tensors["totals"]

    def describe(self) -> dict[str, Any]:
        """Return the views and the weights of the run; collective: bytes of all ranks are gathered."""
        total, n, squares, mass, beyond = self._totals.tolist()
        share = effective_share(n, total, squares)
        rows = self.comm.gather_control([*self._sent.values(), len(self.local.vertices) - self.local.rows])
        initial, repartition, _ = (sum(column) for column in zip(*rows, strict=True))
        return {
            "view": self.config.view,
            "chunking": self.config.chunking,
            "seed_weights": self.config.seed_weights,
            "super_epochs": 1 + self._turn,
            "shrinkage": float(self._amount),
            "weight_cv": (1 / share - 1) ** 0.5 if share else None,
            "effective_share": share,
            "capped_mass": beyond / mass if mass else 0.0,
            "halo_rows": max(row[2] for row in rows),
            "initial_bytes": initial,
            "repartition_bytes": repartition,
        }


def seen_chunks(ranks: int, count: int, turn: int) -> np.ndarray:
    """Return the chunks that each rank sees in a super-epoch: bool, shape (ranks, ranks). No message is needed.

    With p ranks there are p chunks, and rank r trains on the seeds of chunk r. In super-epoch t (`turn`) it sees c chunks (`count`, at most
    all): its own and

        (r + 1 + (t (c - 1) + j) mod (p - 1)) mod p      for j = 0 .. c - 2

    This is a cyclic shift: the same number of ranks sees each chunk, and every pair of chunks meets once in a sweep.
    """
    seen, rank = np.eye(ranks, dtype=bool), np.arange(ranks)
    for j in range(min(count, ranks) - 1):
        shift = 1 + (turn * (count - 1) + j) % (ranks - 1)
        seen[rank, (rank + shift) % ranks] = True
    return seen


def fresh_chunks(seed: int, turn: int, n: int, chunks: int, backend: Backend | None = None) -> np.ndarray:
    """Draw the chunk of every vertex in a super-epoch, uniform and independent: int32, shape (n,).

    The chunk is floor(w m / 2**32), w a 32-bit Philox word that names (vertex, t). Each of the m chunks has probability 1 / m up to
    2**-32.
    """
    words = Words(seed, backend).of(Substream.GRAPPA_CHUNK, 0, n, column=turn)[:, 0]
    return ((words.astype(np.uint64) * np.uint64(chunks)) >> np.uint64(32)).astype(np.int32)

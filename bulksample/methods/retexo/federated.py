"""RETEXO in federated mode: every client holds a few vertices and keeps their features; neighbors exchange logits.

    z^0_v = W_2 act(W_1 x_v)                                   an MLP, alone
    z^l_v = W_2 act(W_1 [z_v || mean of z_u])                  gcn and sage: both are this with RETEXO
          = W_2 act(W_1 [z_v || max of W_pool z_u])            sage-pool
          = W act(attention over z_u)                          gat; several heads but in the last stage, which has one
    for l = 1 .. L, on z = z^(l-1), the logits, frozen and sent once to every neighbor

A stage minimises the mean loss over labelled clients; the best stage by validation score gives the scores. Ranks simulate
the clients: a step of all labelled clients is the step of their union, and a rank sends a row of logits once to each other
rank that needs it. `FederatedRETEXO.client_bytes` counts the bytes that real clients would send, 4 bytes a scalar:

    parameters    2 R_l (m_tr + m_val) |theta_l|    to the clients with training or validation vertices, and back, each round
    final         N |theta_l|                       to all N clients, after each stage
    logits        pairs C                           for l = 1 .. L; a pair is a vertex and another client with a neighbor

Kolluri, Choudhary, Hooi, Saxena, "RETEXO: scalable neural network training over distributed graphs", arXiv 2302.13053 v1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn import Linear

from ...config.metrics import goodness
from ...errors import UsageError
from ...nn.layers import GatLayer, Layer, PoolLayer, SageLayer, VertexLayer
from ...nn.losses import known_rows
from ...training.context import TrainingContext
from ...views.full_graph import HaloRows
from ...views.view import View
from ..config import TrainConfig
from .method import RETEXO, SingleLayerModel, head


class FederatedRETEXO(RETEXO):
    """An MLP and L stages on logits; features stay with their clients."""

    name: ClassVar[str] = "retexo-federated"
    elastic: ClassVar[Literal["minibatches", "whole", "no"]] = "no"
    shares_features: ClassVar[bool] = False
    feature_placements: ClassVar[tuple[str, ...]] = ("partitioned",)  # clients keep theirs

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        if config.layer_norm:
            raise UsageError(f"the method {self.name!r} has no use for layer_norm, because no rows are normalised; leave it out")
        for option, fits, why in (
            ("feature_codec", "fp32", "features stay with their clients"),
            ("cache_bytes", 0, "features stay with their clients"), ("gradient_codec", "fp32", "4 bytes are counted for a scalar"),
        ):  # fmt: skip
            if getattr(config, option) != fits:
                raise UsageError(
                    f"the method {self.name!r} has no use for {option}, because {why}; got {getattr(config, option)}: use {fits}"
                )

    def view(self, context: TrainingContext) -> None:
        super().view(context)
        counts = context.comm.gather_control(_count_clients(self.rows, known_rows(self.labels).cpu().numpy(), self.config.client_vertices))
        self._clients = {key: sum(count[key] for count in counts) for key in counts[0]}

    def stages(self) -> list[int]:
        return [self.config.epochs] * (self.config.layers + 1)

    def make_parts(self, view: View, seed: int) -> list[SingleLayerModel]:
        config, C = self.config, view.num_classes
        generator = torch.Generator().manual_seed(seed)
        activation: Callable[[torch.Tensor], torch.Tensor] = F.elu if config.model == "gat" else F.relu
        parts = []
        for stage in range(len(self.stages())):
            layer = self._layer(stage, view.num_features if stage == 0 else C, generator)
            on_top = head(config.hidden, C, generator, bias=False)
            parts.append(
                SingleLayerModel(layer, None, on_top, activation, generator, 0.0 if stage else config.input_dropout, config.dropout)
            )
        return parts

    def _layer(self, stage: int, width: int, generator: torch.Generator) -> Layer:
        name, hidden = self.config.model, self.config.hidden
        if stage == 0:
            return VertexLayer(width, hidden, generator)
        if name == "gat":
            return GatLayer(width, hidden, 1 if stage == self.config.layers else self.config.heads, generator)
        return PoolLayer(width, hidden, generator, activated=False) if name == "sage-pool" else SageLayer(width, hidden, generator)

    def export(self, part: SingleLayerModel, z: torch.Tensor) -> torch.Tensor:
        return part.logits(z)

    def finish(self, context: TrainingContext) -> None:
        """Report the scores of the best stage by validation score, or of the last stage without a validation split."""
        best = dict(self._finished[self._best_stage()])
        del best["rounds"]
        context.set_scores(int(best.pop("best_epoch")), best)

    def _best_stage(self) -> int:
        def rank(stage: int) -> tuple[float, int]:
            score = self._finished[stage].get(f"val_{self.metric}")
            return (-math.inf if score is None or math.isnan(score) else goodness(self.metric, score), stage)

        return max(range(len(self._finished)), key=rank, default=-1)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "best_stage": self._best_stage(), "clients": self._clients, "client_bytes": self.client_bytes()}

    def client_bytes(self) -> dict[str, int]:
        """Return the bytes that the clients and their server send in the stages that are over."""
        counts, over = self._clients, list(zip(self.parts, self._finished, strict=False))
        sizes = [sum(parameter.numel() for parameter in part.parameters()) for part, _ in over]
        active = counts["training"] + counts["validation"]
        return {
            "parameters": sum(4 * 2 * int(stage["rounds"]) * active * size for size, (_, stage) in zip(sizes, over, strict=True)),
            "final": 4 * counts["clients"] * sum(sizes),
            "logits": 4 * counts["pairs"] * sum(self._widths_sent()[: max(0, len(over) - 1)]),
        }

    def _widths_sent(self) -> list[int]:
        return [cast(Linear, cast(SingleLayerModel, part).head).out_features for part in self.parts]


def _count_clients(rows: HaloRows, trained: np.ndarray, vertices: int) -> dict[str, int]:
    """Count the clients of this rank's rows (`vertices` rows each), their pairs, and the clients with training or validation rows."""
    place = np.empty(rows.rows, np.int64)
    place[np.argsort(rows.vertices)] = np.arange(rows.rows)
    client = place // vertices
    row, source = np.repeat(np.arange(rows.rows), np.diff(rows.structure.indptr)), rows.structure.indices.astype(np.int64)
    away = source >= rows.rows
    away[~away] = client[source[~away]] != client[row[~away]]
    pairs = np.unique(source[away] * max(1, rows.rows) + client[row[away]])
    masks = {"training": trained, "validation": rows.masks.get("val", np.zeros(rows.rows, bool))}
    return {"clients": len(np.unique(client)), "pairs": len(pairs), **{name: len(np.unique(client[mask])) for name, mask in masks.items()}}

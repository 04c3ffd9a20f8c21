"""RETEXO in partition mode: a network trained layer by layer, so that rows travel once a layer and never in a round.

    X^0 = features
    for l = 0 .. L-1:   halo rows of X^l travel, once;   A^l = Agg(X^l), once where it needs no weights
                        train z = conv_l(X^l), logits = Head(act(LN(z))), z itself in the last layer, on frozen X^l
                        X^(l+1) = act(LN(z)) with the best weights by validation, without dropout

With d_l the width of X^l, B_sum the halo rows of all ranks, R_l the rounds of stage l and |theta_l| its parameters, head
and norm among them, a run over p ranks sends

    V = 4 [ B_sum sum_l d_l + sum_l R_l 2 (p - 1) (|theta_l| + 3) + 2 (p - 1) sum_l |theta_l| ]   bytes

as features (l = 0; sparse features as they are stored) and activations, gradients with three sums, and weights (kind "model": those
of rank 0, before and after each stage). No gradient of a row ever travels. Heads are dropped after their stage, so the result is a
`Gnn` with a layer norm, or without one (`--no-layer-norm`). `--refine K` then trains it end to end for K rounds, as `full` does.

With one layer this is `full`. The published code uses degrees within the part of a rank, freezes one dropout mask into the
aggregate, and leaves out vertices without neighbors. Here degrees are those of the whole graph, dropout follows the cached
aggregate, and every vertex is kept.

Kolluri, Choudhary, Hooi, Saxena, "RETEXO: scalable neural network training over distributed graphs", arXiv 2302.13053.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, cast

import torch
from torch import nn

from ...distributed.matrix.codec import codec_named
from ...distributed.matrix.halo import MessageFormat
from ...distributed.matrix.placement import Placement
from ...errors import UsageError
from ...evaluation.evaluate import accuracies, score_logits, scored_masks
from ...nn.aggregate import SparseRows
from ...nn.dropout import PassNames, epilogue
from ...nn.layers import Layer
from ...nn.model import Gnn, Model, check_heads, evaluation_mode
from ...training.context import TrainingContext
from ...training.weights import weights_of_rank_0
from ...views.full_graph import FrozenInput
from ...views.view import View
from ..config import TrainConfig
from ..full import FullGraphMethod


class RETEXO(FullGraphMethod):
    """Train one layer in each stage, on inputs that the ranks exchange once."""

    name: ClassVar[str] = "retexo"
    models: ClassVar[Literal["any", "layers", "own"]] = "own"

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        if config.batch_norm:
            raise UsageError(f"the method {self.name!r} has no place for batch_norm, because it normalises each row alone; leave it out")
        self._finished: list[dict[str, float]] = []  # rounds and scores of each stage that is over
        self._exported = 0

    def view(self, context: TrainingContext) -> None:
        super().view(context)
        self.input, self._ranks = self.graph.input, context.comm.size
        counts = context.comm.gather_control([len(self.rows.halo.vertices), self._halo_feature_bytes()])
        self._halo_rows, self._feature_bytes = (sum(column) for column in zip(*counts, strict=True))

    # ---- stages

    def stages(self) -> list[int]:
        return [self.config.epochs] * self.config.layers + [self.config.refine] * (self.config.refine > 0)

    def model(self, context: TrainingContext, stage: int) -> Model:
        if stage == 0:
            self.parts = nn.ModuleList(self.make_parts(context.view, context.initial_seed()))
        return self.network if stage == len(self.parts) else cast(SingleLayerModel, self.parts[stage])

    def make_parts(self, view: View, seed: int) -> list[SingleLayerModel]:
        """Return the models of all stages with their initial weights; they share the modules of the network."""
        config, L = self.config, self.config.layers
        width = config.hidden
        if config.model == "gat":
            check_heads([width], config.heads)
            width //= config.heads  # heads are averaged, so that a vertex sends fewer numbers
        widths = [view.num_features, *[width] * (L - 1), view.num_classes]
        self.network = net = Gnn(
            config.model, widths, config.dropout, config.input_dropout, heads=config.heads, seed=seed,
            layer_norm=config.layer_norm is not False, average_heads=True,
        )  # fmt: skip
        heads = [head(width, view.num_classes, net.generator) for _ in range(L - 1)]
        norms = [*net.norms, *[None] * (L - len(net.norms))]
        dropped = [config.input_dropout, *[config.dropout] * (L - 1)]
        return [
            SingleLayerModel(cast(Layer, layer), norm, on_top, net.activation, net.generator, share, config.dropout)
            for layer, norm, on_top, share in zip(net.layers, norms, [*heads, None], dropped, strict=True)
        ]

    def begin_stage(self, context: TrainingContext, stage: int) -> None:
        """Export the rows of the earlier stages and exchange them; a resumed run repeats this for every earlier stage."""
        with context.ledger.phase("fetch"):
            while self._exported < stage < len(self.parts):
                part = context.compute.move_model(cast(SingleLayerModel, self.parts[self._exported]))  # a checkpoint leaves it on the host
                self.input = self._after(cast(SingleLayerModel, part))
                self._exported += 1

    @torch.no_grad()
    def _after(self, part: SingleLayerModel) -> FrozenInput:
        """Compute the input of the next stage, and exchange its halo rows: 4 B_sum d bytes (kind "activations")."""
        with evaluation_mode(part):
            rows = self.export(part, part.rows(self.input))
        halo = self.rows.halo.start(rows.contiguous().cpu().numpy(), MessageFormat(), "export").wait()
        return FrozenInput(self.rows, torch.cat([rows, torch.from_numpy(halo).to(rows.device)]))

    def export(self, part: SingleLayerModel, z: torch.Tensor) -> torch.Tensor:
        """Return the rows that the next stage is trained on."""
        return part.hidden(z)

    def end_stage(self, context: TrainingContext, stage: int) -> None:
        weights_of_rank_0(context.model, context.comm)
        progress = context.progress
        self._finished.append({"rounds": progress.rounds, "best_epoch": progress.best_epoch, **progress.best_scores})
        if stage == len(self.stages()) - 1:
            self.finish(context)

    def finish(self, context: TrainingContext) -> None:
        """Make the whole network the result of the run."""
        context.set_result(self.network)

    # ---- a round

    def logits(self, context: TrainingContext) -> torch.Tensor:
        if isinstance(context.model, Gnn):
            return super().logits(context)
        logits: torch.Tensor = context.model(self.input, self.rows.names(context.whole_pass()))
        return logits

    def evaluate(self, context: TrainingContext) -> dict[str, float]:
        """Return the scores of the current stage. Every rank has the logits of its rows, so accuracy needs only sums of counts."""
        with evaluation_mode(context.model), torch.no_grad():
            logits = self.logits(context)
        labels, metric = self.rows.labels, self.metric
        masks = scored_masks(self.rows.masks, self.config.eval_splits)
        if metric == "accuracy":
            return accuracies(logits, labels, masks, context.comm)
        return score_logits(logits, labels, masks, context.view.name, context.comm, metric)

    # ---- state and report

    def state_dict(self) -> dict[str, torch.Tensor]:
        tensors = {f"parts.{name}": tensor.clone() for name, tensor in self.parts.state_dict().items()}
        for i, stage in enumerate(self._finished):
            tensors |= {f"told.{i}.{key}": torch.tensor(value, dtype=torch.float64) for key, value in stage.items()}
        return tensors

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        self.parts.load_state_dict({name[6:]: tensor for name, tensor in tensors.items() if name.startswith("parts.")})
        for name, value in tensors.items():
            if name.startswith("told."):
                _, i, key = name.split(".")
                while len(self._finished) <= int(i):
                    self._finished.append({})
                self._finished[int(i)][key] = value.item()

    def describe(self) -> dict[str, Any]:
        stages = [{**one, "rounds": int(one["rounds"]), "best_epoch": int(one["best_epoch"])} for one in self._finished]
        return {**super().describe(), "halo_rows_of_all": self._halo_rows, "stages": stages, "predicted_bytes": self._volume()}

    def _volume(self) -> dict[str, int]:
        """Predict V by kind, for the stages that are over in a run that was never interrupted; without the refinement."""
        over, p = list(zip(self.parts, self._finished, strict=False)), self._ranks
        sizes = [sum(parameter.numel() for parameter in part.parameters()) for part, _ in over]
        word = 4 if self.config.gradient_codec == "fp32" else 2
        return {
            "features": self._feature_bytes,
            "activations": 4 * self._halo_rows * sum(self._widths_sent()[: max(0, len(over) - 1)]),
            "gradients": sum(2 * (p - 1) * (word * size + 12) * int(stage["rounds"]) for size, (_, stage) in zip(sizes, over, strict=True)),
            "model": 4 * 2 * (p - 1) * sum(sizes),
        }

    def _halo_feature_bytes(self) -> int:
        """Return the bytes of fetching the features of halo rows: 4 for each sparse row and 8 for each entry, or those of the codec."""
        if not Placement.of(self.config, self.graphs[0]).shards_features:
            return 0
        x, first, last = self.rows.x, self.rows.rows, self.rows.x.shape[0]
        if isinstance(x, SparseRows):
            return 4 * (last - first) + 8 * int(x.indptr[last] - x.indptr[first])
        return (last - first) * codec_named(self.config.feature_codec).row_bytes(x.shape[1])

    def _widths_sent(self) -> list[int]:
        """Return the widths of the rows that are exported after each stage."""
        return [layer.width_out for layer in cast(list[Layer], list(self.network.layers))]


class SingleLayerModel(Model):
    """A layer, the norm and activation that follow it, and a head: trained alone on inputs that do not change.

        z = layer(x);   h = act(norm(z));   logits = h W + b with a head of its own, or z itself for the last layer

    The layer and its norm may belong to a `Gnn`, so that training its layers one after another trains that network. Input dropout acts on
    the input of the layer's weights, which for a linear layer is the aggregate; dropout on the input of the head.
    """

    def __init__(
        self, layer: Layer, norm: nn.Module | None, head: nn.Linear | None, activation: Callable[[torch.Tensor], torch.Tensor],
        generator: torch.Generator, input_dropout: float = 0.0, dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layer, self.norm, self.head = layer, norm, head
        self.activation, self.generator = activation, generator
        self.input_dropout, self.dropout = input_dropout, dropout

    def forward(self, x: FrozenInput, names: PassNames | None = None) -> torch.Tensor:
        """Compute the logits of this rank's rows: shape (m, classes). Local. Dropout draws by the names of the rows."""
        return self.logits(self.rows(x, names), names)

    def rows(self, x: FrozenInput, names: PassNames | None = None) -> torch.Tensor:
        """Compute z of this rank's rows, without the bias of the layer: shape (m, width of the layer). Local."""
        return x.layer(self.layer, self, names, clean=True)

    def hidden(self, z: torch.Tensor) -> torch.Tensor:
        """Compute h, the input of the next layer of a network, from z."""
        return self._dropped(z, 0.0, None)

    def logits(self, z: torch.Tensor, names: PassNames | None = None) -> torch.Tensor:
        """Compute the logits from z."""
        if self.head is None:
            return epilogue(z, self.layer.bias)
        logits: torch.Tensor = self.head(self._dropped(z, self.dropout, names))
        return logits

    def _dropped(self, z: torch.Tensor, p: float, names: PassNames | None) -> torch.Tensor:
        """Compute h with dropout."""
        if self.norm is None:
            return self.activated(z, self.layer.bias, p, names, 1)
        return self.activated(self.norm(epilogue(z, self.layer.bias)), None, p, names, 1)


def head(width: int, classes: int, generator: torch.Generator, bias: bool = True) -> nn.Linear:
    """Make a dense layer with initial weights from a generator."""
    made: nn.Linear = nn.utils.skip_init(nn.Linear, width, classes, bias=bias)  # type: ignore[no-untyped-call]
    nn.init.xavier_uniform_(made.weight, generator=generator)
    if bias:
        nn.init.zeros_(made.bias)
    return made

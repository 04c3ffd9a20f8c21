"""LABOR: neighbor sampling in which all vertices of a frontier share one random number per neighbor.

    SAMPLE: the s smallest keys -log(u_t) / w_vt of row v, where u_t names (mini-batch, layer, t) but not v

Each row on its own draws as GraphSAGE does. Rows that share a neighbor tend to draw it together, so a mini-batch touches
fewer vertices. If the layer is left out as well, layers tend to draw the same vertices.

Balin and Catalyurek, "Layer-neighbor sampling: defusing neighborhood explosion in GNNs", NeurIPS 2023: LABOR-0 with
an exact fanout (section 3.2, sequential Poisson sampling), and the layer-dependent variant of its appendix A.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..rng import Draw, Law, Stream
from .node_wise import NodeWise


@dataclass(frozen=True)
class Labor(NodeWise):
    """Node-wise sampling by shared random numbers (LABOR-0), by weight where edges have weights; one of weight 0 is none.

    Parameters
    ----------
    layer_dependent : bool
        Use the same random number of a vertex in every layer of a mini-batch. Each layer stays unbiased, but the mean over two
        layers is not the full aggregation: a vertex that is drawn has a small number in both.
    """

    name: ClassVar[str] = "labor"
    estimates_weighted_means = True
    layer_dependent: bool = False

    def draw(self, stream: Stream, hop: int, epoch: int) -> Draw:
        return stream.draw(Law.LABOR, layer=0 if self.layer_dependent else hop, epoch=epoch)

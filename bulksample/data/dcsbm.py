"""Draw graphs from a degree-corrected stochastic block model with features: a stand-in for data sets that cannot be downloaded.

Each vertex has a class c ~ p with p_k ∝ k^-z, a community inside the class, and a weight θ ~ lognormal(0, σ), cut at 350 times its mean. An
edge joins two vertices, each drawn ∝ θ: the second inside the community of the first with probability h, anywhere otherwise. Features are x
= a u_class + b v_community + N(0, I) with random unit vectors u and v. Finally each label is replaced by a draw from p with probability ρ,
so no model can be right about all of them. Such a graph imitates the difficulty of a data set. It is no evidence about the real one.

Only integers and the operations of `random_words` decide edges, labels and splits, so a graph is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ..backends.base import Backend
from ..errors import UsageError
from ..graph import Graph
from ..rng import Substream
from ..sparse import MAX_VERTICES
from .edges import Pairs, from_keys, sorted_keys
from .random_words import RangeLookup, Words, chunks, exp, log, normal, scaled, threshold, unit_open

_CUT = 350.0  # largest weight over the mean weight, so no vertex has a large share of all edges
_WEIGHT_STEP = 2.0**20
_MAX_TOTAL_BITS = 39  # bits of the sum of all weights; `scaled` then stays in 64 bits


@dataclass(frozen=True)
class BlockModel:
    """All parameters of a block model except its size."""

    classes: int = 47
    class_skew: float = 0.9  # z; 0 makes classes of equal size
    degree_spread: float = 1.2  # σ, at most 3
    homophily: float = 0.9  # h, the share of pairs drawn inside a community
    communities: int | None = None  # K per class; the default keeps a community about four times the mean degree
    features: int = 100  # their number f; 0 makes a graph without them
    class_signal: float = 3.2  # a
    community_signal: float = 3.2  # b
    label_noise: float = 0.03  # ρ
    train: float = 0.08  # shares of the vertices; the rest is the test split
    val: float = 0.02
    # α: the training split takes the vertices of highest log θ + log pop + Gumbel / 2, with pop ~ lognormal(0, α) per community, so it
    # holds few vertices of some communities. None splits uniformly.
    popularity: float | None = 2.2

    def __post_init__(self) -> None:
        for name in ("homophily", "label_noise", "train", "val"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is a share: got {getattr(self, name)}; use 0 to 1")
        if self.train + self.val > 1:
            got = f"got {self.train} + {self.val}"
            raise UsageError(f"train and val leave nothing for the test split: {got}; use shares of at most 1 together")
        ranges = {
            "degree_spread": (0, 3), "class_skew": (0, 10), "classes": (1, 2**16), "features": (0, 2**20), "communities": (1, 2**15),
            "popularity": (0, 10),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise UsageError(f"{name} is out of range: got {value}; use {low} to {high}")

    def communities_for(self, n: int, degree: int) -> int:
        """Return K: `communities` if it is set, else the K for which n / (classes K) is about four times the degree."""
        quarter = 4 * self.classes * max(degree, 1)
        return self.communities or max(1, (n + quarter // 2) // quarter)


PRESETS: Mapping[str, BlockModel] = MappingProxyType({
    "products": BlockModel(),
    "reddit": BlockModel(
        classes=41, class_skew=0.55, degree_spread=1.3, homophily=0.88, communities=1, features=602, class_signal=3.3,
        community_signal=0.0, label_noise=0.045, train=0.66, val=0.10, popularity=None,
    ),
})  # fmt: skip


class _Vertices(NamedTuple):
    """Attributes of the vertices, drawn before any edge."""

    kind: np.ndarray  # int64, shape (n,): the class
    community: np.ndarray  # int64, shape (n,): class * K + community within the class
    log_weight: np.ndarray  # float64, shape (n,): log θ, not cut
    weight: np.ndarray  # int64, shape (n,): θ in fixed point, at least 1


def dcsbm(
    n: int, degree: int, model: BlockModel | str = "products", *, seed: int = 0, backend: Backend | None = None, chunk: int = 2**20,
) -> Graph:  # fmt: skip
    """Draw an undirected graph without self loops, with float32 features, labels and the three splits.

    ``extra`` holds ``planted_class``, the label before noise, and ``community``. See Karrer and Newman, "Stochastic blockmodels and
    community structure in networks", Physical Review E 83, 2011. Raises `UsageError` if an argument is out of range.

    Parameters
    ----------
    degree : int
        n * degree / 2 edges are drawn; repeated edges and self loops are dropped, so the mean degree is lower.
    model : BlockModel or str
        Parameters, or the name of a preset: ``products`` or ``reddit``.
    backend : Backend, optional
        Generates the random words; every back end generates the same.
    chunk : int
        Edges drawn at a time; it does not change the graph.
    """
    if isinstance(model, str) and model not in PRESETS:
        raise UsageError(f"there is no preset {model!r}; use {', '.join(PRESETS)}")
    name, recipe = (model, PRESETS[model]) if isinstance(model, str) else ("dcsbm", model)
    if not 0 <= n <= MAX_VERTICES or degree < 0 or chunk < 1:
        raise UsageError(f"got n = {n}, degree {degree}, chunk {chunk}; use n from 0 to {MAX_VERTICES}, degree from 0, chunk from 1")
    words, communities = Words(seed, backend), recipe.communities_for(n, degree)
    vertices = _vertices(words, recipe, communities, n)
    pairs = n * degree // 2
    adjacency = from_keys(sorted_keys(_edges(words, recipe, vertices, pairs, chunk), 2 * pairs), n)
    return Graph(
        adjacency, features=_features(words, recipe, communities, vertices) if recipe.features else None,
        labels=_labels(words, recipe, vertices), num_classes=recipe.classes, masks=_masks(words, recipe, communities, vertices),
        extra={"planted_class": vertices.kind.astype(np.int32), "community": vertices.community.astype(np.int32)}, name=name,
    ).validate()  # fmt: skip


def _class_limits(model: BlockModel) -> np.ndarray:
    """Return the running sums of the class shares p_k ∝ k^-z, scaled by 2**32: uint64, shape (classes,)."""
    shares = exp(-model.class_skew * log(np.arange(1, model.classes + 1)))
    running = np.cumsum(shares)
    limits: np.ndarray = (running / running[-1] * 2.0**32).astype(np.uint64)
    limits[-1] = 2**32
    return limits


def _vertices(words: Words, model: BlockModel, communities: int, n: int) -> _Vertices:
    limits = _class_limits(model)
    kind, community = np.empty(n, np.int64), np.empty(n, np.int64)
    log_weight, weight = np.empty(n), np.empty(n, np.int64)
    sigma = model.degree_spread
    most = float(_CUT * exp(np.array(sigma * sigma / 2)))
    for first, count in chunks(n):
        w = words.of(Substream.BLOCK_MODEL_VERTEX, first, count)
        part = slice(first, first + count)
        kind[part] = np.searchsorted(limits, w[:, 0], side="right")
        community[part] = kind[part] * communities + scaled(w[:, 1], 32, communities)
        log_weight[part] = sigma * normal(w[:, 2])
        weight[part] = (np.minimum(exp(log_weight[part]), most) * _WEIGHT_STEP).astype(np.int64)
    excess = max(0, int(weight.sum()).bit_length() - _MAX_TOTAL_BITS)
    return _Vertices(kind, community, log_weight, np.maximum(weight >> excess, 1))


def _edges(words: Words, model: BlockModel, vertices: _Vertices, pairs: int, chunk: int) -> Pairs:
    """Draw the edges, and yield the rows and columns of both directions a piece at a time."""
    # In order of community, the weights of a community are a range of the running sum of all weights.
    order = np.argsort(vertices.community, kind="stable")
    running = np.concatenate([[0], np.cumsum(vertices.weight[order])])
    bounds = np.searchsorted(vertices.community[order], np.arange(vertices.community.max(initial=-1) + 2))
    low, total = running[bounds], int(running[-1])
    order, wheel = order.astype(np.int32), RangeLookup(running)
    inside = threshold(model.homophily)
    for first, count in chunks(pairs, chunk):
        coin, *ends = words.of(Substream.BLOCK_MODEL_EDGE, first, count).T
        high, middle, low_word = (word.astype(np.uint64) for word in ends)
        here = (high << np.uint64(16)) | (middle >> np.uint64(16))  # 48 bits for each end
        there = ((middle & np.uint64(0xFFFF)) << np.uint64(32)) | low_word
        u = order[wheel.find(scaled(here, 48, total))]
        home, stays = vertices.community[u], coin < inside
        start = np.where(stays, low[home], 0)
        span = np.where(stays, low[home + 1], total) - start
        v = order[wheel.find(start + scaled(there, 48, span))]
        apart = u != v
        yield u[apart], v[apart]
        yield v[apart], u[apart]


def _directions(words: Words, substream: Substream, count: int, f: int) -> np.ndarray:
    """Draw unit vectors: float64, shape (count, f)."""
    vectors = _normals(words, substream, 0, count, f)
    squares = np.cumsum(vectors * vectors, axis=1)[:, -1:]  # a running sum has one order of additions, a reduction has several
    return np.asarray(vectors / np.sqrt(squares))


def _normals(words: Words, substream: Substream, first: int, count: int, f: int) -> np.ndarray:
    """Draw f normal numbers for each of the items ``first .. first + count - 1``: float64, shape (count, f)."""
    blocks = [normal(words.of(substream, first, count, column=j)) for j in range((f + 3) // 4)]
    return np.concatenate(blocks, axis=1)[:, :f]


def _features(words: Words, model: BlockModel, communities: int, vertices: _Vertices) -> np.ndarray:
    n, f = len(vertices.kind), model.features
    of_class = model.class_signal * _directions(words, Substream.BLOCK_MODEL_CLASS_VECTOR, model.classes, f)
    of_community = None
    if model.community_signal:
        of_community = model.community_signal * _directions(words, Substream.BLOCK_MODEL_COMMUNITY_VECTOR, model.classes * communities, f)
    x = np.empty((n, f), np.float32)
    for first, count in chunks(n, max(1, 2**20 // f)):
        part = slice(first, first + count)
        total = _normals(words, Substream.BLOCK_MODEL_FEATURE, first, count, f)
        total += of_class[vertices.kind[part]]
        if of_community is not None:
            total += of_community[vertices.community[part]]
        x[part] = total
    return x


def _labels(words: Words, model: BlockModel, vertices: _Vertices) -> np.ndarray:
    limits, noise = _class_limits(model), threshold(model.label_noise)
    labels = vertices.kind.copy()
    for first, count in chunks(len(labels)):
        w = words.of(Substream.BLOCK_MODEL_LABEL, first, count)
        part = labels[first : first + count]
        np.copyto(part, np.searchsorted(limits, w[:, 1], side="right"), where=w[:, 0] < noise)
    return labels


def _masks(words: Words, model: BlockModel, communities: int, vertices: _Vertices) -> dict[str, np.ndarray]:
    n = len(vertices.kind)
    if model.popularity is None:
        order: np.ndarray = words.permutation(Substream.BLOCK_MODEL_SPLIT, n)
    else:
        popular = np.empty(model.classes * communities)
        for first, count in chunks(len(popular)):
            popular[first : first + count] = model.popularity * normal(words.of(Substream.BLOCK_MODEL_POPULARITY, first, count)[:, 0])
        score = vertices.log_weight + popular[vertices.community]
        for first, count in chunks(n):
            w = words.of(Substream.BLOCK_MODEL_SPLIT, first, count)[:, 0]
            score[first : first + count] -= 0.5 * log(-log(unit_open(w)))  # Gumbel / 2
        order = np.argsort(-score, kind="stable")
    ends = int(n * model.train), int(n * (model.train + model.val))
    masks = {}
    for split, chosen in zip(("train", "val", "test"), np.split(order, ends), strict=True):
        masks[split] = np.zeros(n, bool)
        masks[split][chosen] = True
    return masks

"""Counter-based random numbers: every draw names its own.

Philox4x32-10 turns a 128-bit counter and a 64-bit key into four 32-bit words. The key is the user's seed;
the counter names the draw. So no two draws share a word, and no word depends on a rank, a thread, a launch shape
or a position within a bulk::

    word 0   index      the block of four draws of a row, or the id of a neighbor
    word 1   vertex     the row; 0 for laws that leave it out (LABOR, layer-wise)
    word 2   mini-batch  the id of the mini-batch within its epoch
    word 3   tag        purpose (4 bits) | layer (8 bits) | epoch (20 bits)

Draws that belong to no layer of a sampler are the members of `Substream`, each with a number of its own in the place of the layer.

References
----------
Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, unique
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .errors import UsageError, is_whole

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

PIECE = 2**14  # counters at a time, so that the ten rounds of Philox run in cache and take little memory
MAX_EPOCHS, MAX_LAYERS, MAX_MINIBATCHES, MAX_PLACES = 2**20, 2**8, 2**32, 2**32


class Purpose(IntEnum):
    """The use of a random word; part of the counter, so that no two uses share a word."""

    SEEDS = 0  # the order of the seeds in an epoch
    UNIFORM = 1  # node-wise draws: positions in a row
    RACE = 2  # weighted node-wise draws: a key per (row, neighbor)
    LABOR = 3  # the same with the row left out
    LAYER = 4  # layer-wise draws: a key per (mini-batch, vertex)
    GENERATE = 5  # synthetic graphs, partitions, and the draws of training methods
    TRAIN = 6  # initial weights, and the seeds of modules of a user's
    ROUNDING = 7  # stochastic rounding of rows that travel: a word per (row, receiver, column)
    WIDTH = 8  # random bit widths of messages
    NEGATIVE = 9  # link prediction: the other destination of an edge of the training graph
    ROOT = 10  # where random subgraphs begin
    RELATION = 11  # the keys of relations and vertex types, from which their own draws are made
    DROPOUT = 12  # the keys of the masks of dropout, from which their words are made


class MaskSite(NamedTuple):
    """One dropout of a model: the part of the name of its random words that is the same in all mini-batches of an epoch."""

    layer: int  # that has made the rows; 0 for the input
    place: int = 0  # among the dropouts of that layer
    kind: int = 0  # the place of the vertex type of the rows among those of the graph
    stage: int = 0  # of a method that trains one network after another


@unique
class Substream(Enum):
    """The draws that belong to no layer of a sampler: the purpose of each, and its number in the place of the layer.

    Two draws with one member must differ in the index, the vertex, the mini-batch or the epoch. A new use takes a new member.
    """

    SEED_ORDER = Purpose.SEEDS, 0
    SHUFFLE_ROUND = Purpose.SEEDS, 1
    SEED_WEIGHT = Purpose.SEEDS, 2
    RMAT_QUADRANT = Purpose.GENERATE, 0
    RMAT_NAME = Purpose.GENERATE, 1
    BLOCK_MODEL_VERTEX = Purpose.GENERATE, 32
    BLOCK_MODEL_EDGE = Purpose.GENERATE, 33
    BLOCK_MODEL_FEATURE = Purpose.GENERATE, 34
    BLOCK_MODEL_CLASS_VECTOR = Purpose.GENERATE, 35
    BLOCK_MODEL_COMMUNITY_VECTOR = Purpose.GENERATE, 36
    BLOCK_MODEL_LABEL = Purpose.GENERATE, 37
    BLOCK_MODEL_POPULARITY = Purpose.GENERATE, 38
    BLOCK_MODEL_SPLIT = Purpose.GENERATE, 39
    HETERO_TIME = Purpose.GENERATE, 48  # the vertex or edge is the index, and the place of its type or relation the column
    HETERO_LABEL = Purpose.GENERATE, 49
    HETERO_FEATURE = Purpose.GENERATE, 50
    HETERO_EDGE = Purpose.GENERATE, 51
    HETERO_EDGE_TIME = Purpose.GENERATE, 52
    PARTITION_VERTEX = Purpose.GENERATE, 100
    PARTITION_CLUSTER = Purpose.GENERATE, 101
    GRAPPA_CHUNK = Purpose.GENERATE, 102
    COFREE_PART = Purpose.GENERATE, 103
    COFREE_DROPPED_EDGE = Purpose.GENERATE, 104
    BNS_BOUNDARY = Purpose.GENERATE, 105
    HELD_OUT_LINK = Purpose.GENERATE, 109
    HELD_OUT_LINK_DIRECTION = Purpose.GENERATE, 110
    HELD_OUT_LINK_NEGATIVE = Purpose.GENERATE, 111
    MODEL = Purpose.TRAIN, 0
    FEATURE_ROUNDING = Purpose.ROUNDING, MAX_LAYERS - 1  # rows of hidden layers have lower numbers
    PYG_NEGATIVE = Purpose.NEGATIVE, 1
    LINK_NEGATIVE = Purpose.NEGATIVE, 2
    DGL_NEGATIVE = Purpose.NEGATIVE, 3
    SAINT_ROOT = Purpose.ROOT, 0
    SAINT_COUNTED_ROOT = Purpose.ROOT, 1
    RELATION_KEY = Purpose.RELATION, 0
    TYPE_KEY = Purpose.RELATION, 1
    DROPOUT_KEY = Purpose.DROPOUT, 0

    def tag(self, epoch: int = 0) -> int:
        """Return word 3 of the counter; raises `UsageError` if the epoch does not fit."""
        return tag(*self.value, epoch)


class Law(IntEnum):
    """The law by which a row draws s of its neighbors."""

    UNIFORM = 0  # s distinct ones, every subset equally likely (Floyd)
    REPLACEMENT = 1  # s independent ones
    RACE = 2  # s distinct ones, by weight: the s smallest of -log(u) / w
    LABOR = 3  # the same, u shared by all rows that see the neighbor
    WEIGHTED = 4  # s independent ones, by weight

    @property
    def weighs(self) -> bool:
        """True if the law reads weights: an edge of weight 0 is none to it, also where it takes all."""
        return self in (Law.RACE, Law.LABOR, Law.WEIGHTED)


def philox(counter: np.ndarray, key: int) -> np.ndarray:
    """Apply Philox4x32-10 to many counters.

    Parameters
    ----------
    counter : uint32, shape (..., 4)
    key : int
        64 bits.

    Returns
    -------
    uint32, shape (..., 4)
    """
    c = [np.ascontiguousarray(counter[..., i]).astype(np.uint64) for i in range(4)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = _MULTIPLIERS[0] * c[0], _MULTIPLIERS[1] * c[2]
        c = [(p1 >> _32) ^ c[1] ^ np.uint64(k0), p1 & _LOW, (p0 >> _32) ^ c[3] ^ np.uint64(k1), p0 & _LOW]
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack(c, axis=-1).astype(np.uint32)


def counters(index: np.ndarray | int, vertex: np.ndarray | int, minibatch: np.ndarray | int, tag: np.ndarray | int) -> np.ndarray:
    """Build the counters of many draws, broadcast together: uint32, shape (..., 4)."""
    parts = np.broadcast_arrays(index, vertex, minibatch, tag)
    return np.stack([np.asarray(part).astype(np.uint32) for part in parts], axis=-1)


def check_seed(seed: Any) -> None:
    """Raise `UsageError` unless the seed is an integer from 0 to 2**64 - 1."""
    if not is_whole(seed, 0, 2**64 - 1):
        raise UsageError(f"seed must be a 64-bit number: got {seed!r}; use 0 to {2**64 - 1}")


@dataclass(frozen=True)
class Stream:
    """The source of all random numbers of a run: functions of the seed and of the name of the draw.

    Parameters
    ----------
    seed : int
        0 to 2**64 - 1.
    """

    seed: int

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def draw(self, law: Law, *, epoch: int = 0, layer: int = 0) -> Draw:
        """Return the `Draw` of the node-wise draws of one layer: the law, the seed and the fixed part of the counter."""
        purpose = {Law.RACE: Purpose.RACE, Law.LABOR: Purpose.LABOR}.get(law, Purpose.UNIFORM)
        return Draw(law, self.seed, tag(purpose, layer, epoch))

    def layer_draw(self, *, epoch: int = 0, layer: int = 0) -> Draw:
        """Return the counter prefix of the layer-wise draws of one layer: a race whose keys name (mini-batch, vertex)."""
        return Draw(Law.LABOR, self.seed, tag(Purpose.LAYER, layer, epoch))

    def of_relation(self, ordinal: int) -> Stream:
        """Return the stream of a relation: this one for relation 0, else one with a key of its own. See `Substream.RELATION_KEY`."""
        return _keyed(self, Substream.RELATION_KEY, ordinal)

    def of_type(self, place: int) -> Stream:
        """Return the stream of a vertex type, for draws that all rows share (LABOR): this one for type 0."""
        return _keyed(self, Substream.TYPE_KEY, place)

    def mask_key(self, site: MaskSite, epoch: int) -> int:
        """Return the key of the words that one dropout of a model draws in an epoch; see `MaskSite` for those it differs from.

        The counter of a word is (column div 8, vertex, mini-batch, tree), with tree 0 where trees are not disjoint: four words are 16 bits
        for each of 8 columns. So a mask depends on no rank, thread, or place of a row in a mini-batch. Raises `UsageError` if a number of
        the site, or the epoch, does not fit its bits.
        """
        limits = {"layer": MAX_LAYERS, "place": MAX_PLACES, "kind": 2**16, "stage": MAX_MINIBATCHES}
        for name, limit in limits.items():
            if not is_whole(number := getattr(site, name), 0, limit - 1):
                raise UsageError(f"dropout {name} must be a whole number from 0 to {limit - 1}; got {number!r}")
        index, more = np.array([site.layer << 24 | site.place % 2**8 << 16 | site.kind]), site.place >> 8
        return int(as_u64(self.words(Substream.DROPOUT_KEY.tag(epoch), index, vertex=more, minibatch=site.stage))[0])

    def words(self, tag: int, index: np.ndarray | int, *, vertex: np.ndarray | int = 0, minibatch: np.ndarray | int = 0) -> np.ndarray:
        """Return four 32-bit words for every index: uint32, shape (..., 4); `tag` is that of a `Substream` and an epoch."""
        return philox(counters(np.asarray(index), vertex, minibatch, tag), self.seed)

    def permutation(self, n: int, epoch: int = 0, group: int = 0) -> np.ndarray:
        """Permute 0 .. n - 1 for one epoch, and one of several groups: int64, shape (n,).

        Positions are sorted by 64-bit random keys; equal keys keep their order. See `shuffle` for orders of many examples.
        """
        tag, keys = Substream.SEED_ORDER.tag(epoch), np.empty(n, np.uint64)
        for first in range(0, n, PIECE):
            part = slice(first, min(first + PIECE, n))
            keys[part] = as_u64(self.words(tag, np.arange(part.start, part.stop), minibatch=group))
        return np.argsort(keys, kind="stable")


@lru_cache(maxsize=4096)
def _keyed(stream: Stream, use: Substream, number: int) -> Stream:
    """Return the stream whose key is a word of the given one; remembered, since each bulk asks for those of all relations."""
    return stream if number == 0 else Stream(int(as_u64(stream.words(use.tag(), np.array([number])))[0]))


@dataclass(frozen=True)
class Draw:
    """A sampling law with the part of the counter that is fixed in one call.

    ``law`` decides which counter words vary: UNIFORM, REPLACEMENT and WEIGHTED name (mini-batch, row, draw), RACE names
    (mini-batch, row, neighbor), LABOR names (mini-batch, neighbor).
    """

    law: Law
    seed: int
    tag: int


def tag(purpose: Purpose, layer: int, epoch: int) -> int:
    """Pack word 3 of the counter; raises `UsageError` if a part does not fit its bits."""
    if not 0 <= layer < MAX_LAYERS:
        raise UsageError(f"layer {layer} is out of range: at most {MAX_LAYERS} layers")
    if not 0 <= epoch < MAX_EPOCHS:
        raise UsageError(f"epoch {epoch} is out of range: at most {MAX_EPOCHS} epochs")
    return (int(purpose) << 28) | (layer << 20) | epoch


def as_u64(words: np.ndarray) -> np.ndarray:
    """Join words 0 and 1 of each block into one 64-bit integer: uint64, shape (...)."""
    return words[..., 0].astype(np.uint64) | (words[..., 1].astype(np.uint64) << _32)


def as_unit(words: np.ndarray) -> np.ndarray:
    """Convert the upper 53 bits of words 0 and 1 to a float64 in [0, 1)."""
    return (as_u64(words) >> np.uint64(11)).astype(np.float64) * 2.0**-53

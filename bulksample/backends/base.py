"""The interface of a back end, and the definition of each of its primitives.

`reference` implements the definitions in numpy; `native` and `cuda` are fast implementations. Every primitive is a
function of its arguments alone, and every back end returns the same bits. Arguments are canonical and in
range (`CSR.validate`, `Selection.of`); back ends do not check them again.

Letters: A is n x n, Q selects R vertices in k mini-batches, s is the fanout, E counts what was drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from ..errors import UsageError
from ..graph.selection import Selection
from ..rng import Draw
from ..sparse import CSR
from .dropout import Mask
from .hops import Expansion, Hop, hop_by_hop
from .layer_draws import LayerPicks, LayerRace, LayerWeights, SharedDraws
from .quantiser import Noise
from .relational import HeteroExpansion, RelationLaw, RelationMatrix, RowPicks, Trees, TreeVertices, relabel_by_sorting

MAX_FANOUT = 2**20 - 1


class Picks(NamedTuple):
    """The columns drawn from each row: row r drew ``columns[pointers[r]:pointers[r + 1]]``, in ascending order."""

    pointers: np.ndarray  # int64, shape (rows + 1,)
    columns: np.ndarray  # int32, shape (E,): global vertices


class Restriction(NamedTuple):
    """Q_R A Q_C, kept per mini-batch."""

    pointers: np.ndarray  # int64, shape (R + 1,)
    columns: np.ndarray  # int32, shape (E,): positions in the mini-batch's part of Q_C, ascending by global vertex
    entries: np.ndarray  # int64, shape (E,): positions in A.indices


class Backend(ABC):
    """The primitives of matrix-based sampling."""

    name: ClassVar[str]
    threads: int = 1

    @abstractmethod
    def random_words(self, seed: int, tag: int, first: int, count: int, vertex: int = 0, minibatch: int = 0) -> np.ndarray:
        """Return the Philox words of the counters ``index = first .. first + count - 1``: uint32, shape (count, 4).

        All other counter words are held fixed; see `bulksample.rng`. ``first + count`` is at most 2**32.
        """

    @abstractmethod
    def spgemm(self, a: CSR, b: CSR) -> CSR:
        """Multiply two sparse integer matrices, C = A B.

        Parameters
        ----------
        a : CSR, shape (m, n), int64 values or ones
        b : CSR, shape (n, q), int64 values or ones

        Returns
        -------
        CSR, shape (m, q), int64 values: columns ascend within a row, no duplicates, no stored zeros.

        Raises
        ------
        UsageError
            If ``a.shape[1] != b.shape[0]``, or a matrix holds real values.
        OverflowError
            If a row sum of products could exceed int64.

        Notes
        -----
        Work is the number of products, sum over (i, j) in A of nnz(B[j, :]); extra memory is one hash table per
        row in flight. Sums are exact, so the order of products does not matter.

        References
        ----------
        Bank and Douglas, "Sparse matrix multiplication package (SMMP)", 1993: a count pass, then a fill pass.
        """

    @abstractmethod
    def extract_rows(self, a: CSR, rows: np.ndarray) -> CSR:
        """Compute Q A for a Q with one 1 in each row: row r of the result is row ``rows[r]`` of A.

        `rows` is int32 of shape (R,) and may repeat. Rows are copied; no product is formed.
        """

    @abstractmethod
    def sample_rows(self, a: CSR, q: Selection, fanout: int, draw: Draw) -> Picks:
        """Draw SAMPLE(NORM(Q A), s) with one row of Q per (mini-batch, vertex); Q A is never stored.

        Row r draws from row v = ``q.vertices[r]`` of A, of degree d. Its name in the counters is ``q.names[r]`` (v itself, as a
        rule). ``fanout = -1`` takes all d neighbors. RACE, LABOR and WEIGHTED read weights: an edge of weight 0 is none to them, so they
        take, as all, those of positive weight, and none from a row of zeros.

        =========== ========================================================================================
        law         the picks
        =========== ========================================================================================
        UNIFORM     all d where d <= s; else Floyd's s draws: for t = 0 .. s - 1, with j = d - s + t, a position
                    uniform in 0 .. j, or j itself where that position is taken
        REPLACEMENT s independent positions, kept in ascending order, repetitions and all; none where d = 0
        RACE        the s smallest keys -log(u) / w among the neighbors of positive weight, ties to the smaller
                    column; u names (mini-batch, row, neighbor)
        LABOR       the same, u names (mini-batch, neighbor)
        WEIGHTED    s independent neighbors with probability w / W each, W the sum of the row, in ascending order,
                    repetitions and all; none where W = 0
        =========== ========================================================================================

        Position t is made from word t mod 4 of block t div 4 by multiply-shift, exactly uniform by rejection
        (Lemire 2019); the i-th retry of draw t is word 0 of block ``2**31 + i * 2**20 + t``. Keys are those of
        `smallest_keys`. Draw t of WEIGHTED is the first position whose running sum of weights exceeds floor(u W / 2**64), the 64 bits
        of u those of words 2 (t mod 2) and 2 (t mod 2) + 1 of block t div 2. Matrices of ones weigh every neighbor alike.

        References
        ----------
        Bentley and Floyd, "A sample of brilliance", 1987. Efraimidis and Spirakis, "Weighted random sampling
        with a reservoir", 2006. Balin and Catalyurek, "Layer-neighbor sampling", NeurIPS 2023.
        """

    @abstractmethod
    def smallest_keys(
        self, pointers: np.ndarray, columns: np.ndarray, weights: np.ndarray, fanout: int, minibatches: np.ndarray, draw: Draw
    ) -> LayerPicks:
        """Draw s columns of each row without replacement, with probability by weight.

        Parameters
        ----------
        pointers, columns : int64 (k + 1,), int32 (nnz,)
            One row per mini-batch, columns ascending; or a single row, ``len(pointers) == 2``, that all share.
        weights : float64, shape (nnz,)
            Finite and not negative; zero is never drawn.
        fanout : int
            s; -1 takes every column of positive weight.
        minibatches : int64, shape (k,)

        Returns
        -------
        LayerPicks of k rows: the s smallest keys E / w, ties to the smaller column, in ascending column order.

        Notes
        -----
        E is -log2(u / 2**64) in fixed point with 57 fractional bits, of a 64-bit u from the counter (column, 0,
        mini-batch, tag), by integer arithmetic alone; E / w is one IEEE division, so every device orders keys alike.
        With tau the smallest key that was left out, a column of weight w had its key below tau with probability
        1 - 2**(-w tau): the inclusion probability, 1 where nothing was left out. A sum over the draws in which each
        term is divided by it is unbiased; where s p is small it tends to s p, the correction of the with-replacement law.

        References
        ----------
        Efraimidis and Spirakis 2006 for the keys; Cohen and Kaplan, "Summarizing data using bottom-k sketches",
        PODC 2007, for the rank-conditioned probability.
        """

    def first_arrivals(self, ends: np.ndarray, fanout: int, minibatches: np.ndarray, draw: Draw) -> tuple[np.ndarray, np.ndarray] | None:
        """Find the first s columns to arrive in the process of `samplers.arrivals`, in one call; None if this back end cannot.

        Parameters
        ----------
        ends : int64, shape (C,)
            Running sums of positive weights; more than s columns.
        fanout : int
            s, not negative.
        minibatches : int64, shape (k,)

        Returns
        -------
        positions : int64, shape (k, s)
            Ascending.
        times : float64, shape (k,)
            The time at which the column after them arrives, divided by the sum of the weights.
        """
        return None

    @abstractmethod
    def restrict(self, a: CSR, rows: Selection, columns: Selection) -> Restriction:
        """Compute Q_R A Q_C for each mini-batch: the entries of A whose row and column it selected.

        The columns of a mini-batch must be distinct, which is not checked; its rows may repeat.

        Work is the sum of the degrees of the rows, or less if few columns are selected; memory is per mini-batch, never n words.
        """

    def locate(self, a: CSR, rows: np.ndarray, pointers: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Find drawn edges in A: int64, shape (E,), positions in ``a.indices``.

        Parameters
        ----------
        rows : int32, shape (R,)
        pointers, columns : int64 (R + 1,), int32 (E,)
            Some columns of each row, ascending; one may repeat. All of them must be in A, which is not checked.

        Notes
        -----
        A binary search in each row, which continues from the entry it found last: O(log d) reads an edge.
        """
        return a.find(np.repeat(rows, np.diff(pointers)), columns)

    @abstractmethod
    def relabel(self, known: Selection, pointers: np.ndarray, columns: np.ndarray) -> tuple[Selection, np.ndarray]:
        """Number the distinct vertices of each mini-batch.

        Parameters
        ----------
        known : Selection
            Distinct vertices that each mini-batch holds already; they keep their positions.
        pointers, columns : int64 (k + 1,), int32 (E,)
            The vertices that each mini-batch found, in order.

        Returns
        -------
        extended : Selection
            The known vertices followed by the new ones in order of first occurrence.
        local : int32, shape (E,)
            The position of each found vertex in its mini-batch's part of `extended`.
        """

    def expand(
        self, a: CSR, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool, entries: bool = False,
        numbered: bool = True,
    ) -> list[Expansion]:  # fmt: skip
        """Take mini-batches through all hops of node-wise sampling in one call.

        Hop h draws ``sample_rows(a, frontier, fanouts[h], draws[h])`` and numbers the vertices it found by `relabel`; `hop_by_hop`
        says which rows the next frontier has. All draws have one seed. `entries` asks for the positions of the edges in A, which a
        back end may know from drawing. If it does not, `Hop.entries` is None and `locate` finds them. Without `numbered` the last hop is
        left in vertices of the graph.

        Notes
        -----
        An edge costs at most three random reads: a row pointer for each row, a column, and the entry of its vertex in a table.
        Memory beyond the result is one table of vertices per thread.
        """

        def draw_hop(frontier: Selection, hop: int) -> Hop:
            return Hop(*self.sample_rows(a, frontier, fanouts[hop], draws[hop]), None)

        return hop_by_hop(self.relabel, seeds, draw_hop, len(fanouts), only_new, numbered)

    def expand_layers(
        self, a: CSR, seeds: Selection, drawn: LayerRace | SharedDraws, weights: LayerWeights, only_new: bool
    ) -> list[Expansion] | None:
        """Take mini-batches through all hops of layer-wise sampling in one call; None if this back end cannot.

        Parameters
        ----------
        drawn : LayerRace or SharedDraws
            The law by which hops draw from their frontiers, or the picks of hops that need no frontier.

        Notes
        -----
        The rows of a growing frontier are summed once, not once a hop. Memory beyond the result is, for each thread, a table of
        sums and one bit for each of the n vertices.
        """
        return None

    def expand_relations(
        self, counts: Sequence[int], relations: Sequence[RelationMatrix], trees: Trees, laws: Sequence[Sequence[RelationLaw]],
        only_new: bool, entries: bool = True,
    ) -> list[HeteroExpansion] | None:  # fmt: skip
        """Take mini-batches through all hops on relations in one call; None if this back end cannot.

        Parameters
        ----------
        counts : list of int
            Number of vertices of each type.
        laws : [hop][relation] of RelationLaw
        entries : bool
            Without it, positions of edges may be left out: `Hop.entries` is None.

        Notes
        -----
        `relation_hops.expand_relations` is the definition. A window of time costs a binary search in its row, and reads nothing else of
        the row but the edges drawn, unless the law weighs them.
        """
        return None

    def sample_relation(
        self, relation: RelationMatrix, vertices: np.ndarray, names: np.ndarray, minibatches: np.ndarray, starts: np.ndarray | None,
        ends: np.ndarray | None, law: RelationLaw,
    ) -> RowPicks | None:  # fmt: skip
        """Draw from R rows of a relation, or from windows of time in them; None if this back end leaves it to the definition.

        Parameters
        ----------
        vertices, names : int32, shape (R,)
            The rows, and their names in the counters.
        minibatches : int64, shape (R,)
            Word 2 of the counter of each row.
        starts, ends : int64, shape (R,), optional
            The first and the last time of each window; without starts they begin at the beginning, without ends nothing is left out.

        Notes
        -----
        `relation_draws.draw_rows` is the definition.
        """
        return None

    def relabel_trees(
        self, pointers: np.ndarray, held: TreeVertices, found: TreeVertices, tree_pointers: np.ndarray
    ) -> tuple[np.ndarray, TreeVertices, np.ndarray]:
        """Number the distinct vertices of each mini-batch, those of each tree apart.

        Parameters
        ----------
        pointers : int64, shape (k + 1,)
            The part of each mini-batch in `held`.
        held, found : TreeVertices
            Distinct vertices that the mini-batches hold already, which keep their positions, and what their trees found, in order; both
            mini-batch by mini-batch, which is not checked.
        tree_pointers : int64, shape (k + 1,)
            The trees of each mini-batch.

        Returns
        -------
        pointers : int64, shape (k + 1,)
        extended : TreeVertices
            Those held by each mini-batch, followed by the new ones in order of first occurrence.
        local : int32, shape (E,)
            The position of each found vertex in its mini-batch's part of `extended`.
        """
        return relabel_by_sorting(pointers, held, found, tree_pointers)

    def expand_tables(self, n: int, k: int, b: int, fanouts: Sequence[int], vertices: int) -> int:
        """Predict the bytes of the tables of `expand` for k > 0 mini-batches of b seeds and `vertices` vertices each; 0 if unknown."""
        return 0

    def layer_tables(self, a: CSR, k: int, b: int, candidates: int) -> int:
        """Predict the bytes of the tables of `expand_layers` for k > 0 mini-batches of b seeds; 0 if unknown.

        Each mini-batch draws among `candidates` vertices; 0 if the draws need no frontier.
        """
        return 0

    @abstractmethod
    def quantise(self, rows: np.ndarray, bits: int, names: np.ndarray, noise: Noise | None = None, wide: bool = False) -> np.ndarray:
        """Round every row to b-bit codes on a grid of its own.

        Parameters
        ----------
        rows : float32, shape (m, f)
        bits : {2, 4, 8}
            b.
        names : int32, shape (m,)
            The name of each row in its random words.
        noise : Noise, optional
            Rounds to the nearest code by default, ties down: no randomness, and a bias.
        wide : bool
            True if the header is two float32, false if it is two bfloat16.

        Returns
        -------
        uint8, shape (m, ceil(f b / 8) + h), h = 8 or 4
            The codes of each row, the lowest bits first, then the header z, S.

        Raises
        ------
        DataError
            If a number is infinite, not a number, or not below 2**126 in size.

        Notes
        -----
        With y_k = (h_k - z) / S a code is the whole part of y_k, plus one with probability of the fractional part, decided by word
        k mod 4 of block (k div 4, name, receiver, tag); it is at most 2**b - 1. So E h^ = h, up to the rounding of h^ to
        float32, and ``E |h^ - h|^2 <= f S^2 / 4``. Wide: z is min h, S = (max h - min h) / (2**b - 1) rounded up. Narrow: z is
        min h rounded down to bfloat16, and S follows from it, rounded up; codes are made on that grid, the receiver's. A
        constant row comes back to the bit.

        References
        ----------
        Wan, Zhao, Wu, "Adaptive message quantization and parallelization for distributed full-graph GNN training",
        MLSys 2023, whose grid is that of the sender alone.
        """

    @abstractmethod
    def dequantise(self, records: np.ndarray, width: int, bits: int, wide: bool = False) -> np.ndarray:
        """Decode records to z + q S: float32, shape (m, width)."""

    @abstractmethod
    def gather(self, x: np.ndarray, rows: np.ndarray, scale: np.ndarray | None, out: np.ndarray) -> None:
        """Write D Q X into `out`: Q selects rows of a dense matrix, the diagonal D scales each.

        Parameters
        ----------
        x : float32, float16, or uint16 for the bits of bfloat16, shape (n, f), C-contiguous
        rows : int32, shape (N,)
            May repeat.
        scale : float32, shape (n,), optional
            The factor of each row of x; one multiplication in float32.
        out : float32, shape (N, f)
            Overwritten.
        """

    @abstractmethod
    def spmm(
        self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, x: np.ndarray, scale: np.ndarray | None = None,
        mean: bool = False, out: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Multiply a sparse matrix by a dense one, Y = A D X: float32, shape (R, f).

        Parameters
        ----------
        indptr : int64, shape (R + 1,)
            Row pointers. They may start above 0, so that consecutive rows of a matrix need no copy of its entries.
        indices : int32, shape (E,)
            Columns, in any order; one may repeat.
        weights : float32, shape (E,), optional
            Entries; ``None`` stands for ones.
        x : float32, float16, or uint16 for the bits of bfloat16, shape (S, f), C-contiguous
        scale : float32, shape (S,), optional
            The diagonal of D, a factor of each row of x: one multiplication in float32, as in `gather`.
        mean : bool
            Multiply each sum by one over the number of entries of its row, rounded to float32; a row without any stays 0.
        out : float32, shape (R, f), C-contiguous, optional
            Overwritten, and returned; a new array by default.

        Notes
        -----
        Row r of Y starts at 0 and adds its terms in float32 in the order of its entries, so a product repeats to the bit whatever the
        number of threads, and Y has the bits of a product with rows that were gathered first. Between back ends the bits agree without
        weights; with them, a machine may round a product and its sum once.
        """

    @abstractmethod
    def transpose(
        self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, columns: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return row pointers, columns and weights of A^T, shape (S, D); dX = A^T dY is the gradient of `spmm`.

        The matrix is as in `spmm`, with `columns` = S and row pointers that run from 0 to E. The columns of a row of A^T ascend; entries
        with the same column keep their order.
        """

    @abstractmethod
    def epilogue(self, z: np.ndarray, bias: np.ndarray | None, relu: bool, mask: Mask | None, out: np.ndarray) -> None:
        """Write y = m act(z + b) into `out`, in one pass: what follows the products of a layer.

        Parameters
        ----------
        z : float32, shape (R, h)
        bias : float32, shape (h,), optional
        relu : bool
            act is relu, which keeps a NaN; else the identity.
        mask : Mask, optional
            m, as `backends.dropout` defines it; by default nothing is dropped.
        out : float32, shape (R, h)
            Overwritten; it may be z itself.

        Notes
        -----
        One read and one write of R h numbers, and a block of random words for 8 of them. All back ends agree to the bit.
        """

    @abstractmethod
    def epilogue_gradient(
        self, grad: np.ndarray, y: np.ndarray | None, mask: Mask | None, bias: bool, out: np.ndarray
    ) -> np.ndarray | None:
        """Write dL/dz into `out`, and return dL/db if `bias`: float32, shape (h,).

        Parameters
        ----------
        grad : float32, shape (R, h)
            dL/dy.
        y : float32, shape (R, h), optional
            The result of `epilogue`, if it was that of relu: its sign says what was kept, so no random word is drawn. A NaN counts as kept.
        mask : Mask, optional
            That of `epilogue`.
        out : float32, shape (R, h)

        Notes
        -----
        A bias is summed in float32 over each 256 rows, row after row, and over these sums in float64: the bits depend on no thread.
        """

    @abstractmethod
    def drop_entries(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, mask: Mask) -> np.ndarray:
        """Apply dropout to the entries of a sparse matrix as to those of the dense one: float32, shape (E,).

        Row pointers are int64, shape (R + 1,), from 0 to E; columns int32 and values float32, shape (E,).
        """

    def check_product(self, a: CSR, b: CSR) -> None:
        """Check the arguments of `spgemm`, and raise the errors that it documents."""
        if a.shape[1] != b.shape[0]:
            raise UsageError(f"A B needs as many columns in A as rows in B: got {a.shape} and {b.shape}")
        for name, matrix in (("A", a), ("B", b)):
            if matrix.values is not None and matrix.values.dtype != np.int64:
                raise UsageError(f"spgemm multiplies integers: {name} holds {matrix.values.dtype}; fixed_point makes int64 of real weights")
        summed, largest = int(a.degrees.max(initial=0)), a.value_bound * b.value_bound
        if summed * largest > 2**63 - 1:
            summed = min(summed, b.longest_column)  # a sum has at most one product for each entry of a column of B
        if summed * largest > 2**63 - 1:
            raise OverflowError(
                f"a row sum of products could exceed int64: {summed} products of up to {a.value_bound} * {b.value_bound}; "
                "use weights of a coarser fixed point"
            )


def drawn_from(a: CSR, draws: Sequence[Draw]) -> CSR:
    """Return the matrix from which laws draw the same as from A, and take all that it holds: A without zeros if they read weights."""
    return a.positive if all(draw.law.weighs for draw in draws) else a


def check_fanout(fanout: int) -> int:
    """Return the fanout if it is -1 (all neighbors) or 0 .. 2**20 - 1; raise `UsageError` otherwise."""
    if fanout != -1 and not 0 <= fanout <= MAX_FANOUT:
        fits = f"1 .. {MAX_FANOUT}, or -1 for all neighbors; single relations and the loaders of other libraries also take 0, none"
        raise UsageError(f"fanout must be in {fits}; got {fanout}")
    return fanout

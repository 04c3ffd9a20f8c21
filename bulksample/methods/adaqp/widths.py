"""Choose the bits of each message: less noise against less time. A search replaces the published solver.

    minimise   lambda (Var - Var_8) / (Var_2 - Var_8) + (1 - lambda) (Time - Time_2) / (Time_8 - Time_2)   over b in {2, 4, 8}
    Var  = sum over messages of beta / (2^b - 1)^2
    Time = sum over rounds r = 1 .. p - 1 of the longest theta_ij bytes_ij + gamma_ij,  j = i + r mod p

Var_2 and Time_2 belong to 2 bits everywhere, Var_8 and Time_8 to 8 bits. If a round may take the time Z, its pairs are independent
of each other. An upgrade doubles the bits of one message: it reduces the noise (its gain) and adds bytes (its cost). The second upgrade
of a message, 4 -> 8 bits, gains less per byte than the first. So every pair makes its upgrades in order of gain per byte, and the best Z
is one of the times at which a pair has made one more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...distributed.comm.base import Comm
from ...errors import UsageError

CLASSES = (2, 4, 8)
_ERRORS = np.array([1.0 / (2**bits - 1) ** 2 for bits in CLASSES])  # of a message, over its beta
Pair = tuple[int, int]  # sender, receiver
Widths = dict[Pair, np.ndarray]  # uint8 of {2, 4, 8} for each message of a pair
_SIZES = 2 ** np.arange(12, 21, 2)  # bytes
_TIMES = 3  # of each size; the shortest counts


class LinkSpeeds(NamedTuple):
    """The time to send from i to j: theta_ij ms per MiB plus gamma_ij ms, both float64 of shape (p, p)."""

    theta: np.ndarray
    gamma: np.ndarray

    @staticmethod
    def even(p: int) -> LinkSpeeds:
        """Return equal links; their speed does not change the best widths."""
        return LinkSpeeds(np.ones((p, p)), np.zeros((p, p)))


class _Upgrades(NamedTuple):
    """The upgrades of a pair of ranks, in order of gain per byte."""

    pair: Pair
    message: np.ndarray  # int64, shape (2 n,)
    gain: np.ndarray  # reduction of variance
    cost: np.ndarray  # bytes
    time: np.ndarray  # time of the pair after this and all earlier upgrades
    start: float  # time of the pair with 2 bits everywhere


@dataclass(frozen=True)
class Problem:
    """The choice of widths for the messages of one layer and direction.

    `betas` are the noise of each message times (2^b - 1)^2, float64, by (sender, receiver); pairs without messages may be left out.
    `sizes` are the bytes of a message of 2, 4 and 8 bits, with its header, and `trade` is lambda, from 0 (time alone) to 1 (noise alone).
    """

    betas: Mapping[Pair, np.ndarray]
    sizes: tuple[int, int, int]
    links: LinkSpeeds
    trade: float = 0.5

    def variance(self, widths: Widths) -> float:
        """Return the variance that rounding adds to all messages."""
        return sum(float(self.betas[pair] @ _ERRORS[np.searchsorted(CLASSES, bits)]) for pair, bits in widths.items())

    def time(self, widths: Widths) -> float:
        """Return the milliseconds of all rounds."""
        rounds: dict[int, float] = {}
        for pair, bits in widths.items():
            r = self._round(pair)
            rounds[r] = max(rounds.get(r, 0.0), self._milliseconds(pair, self._bytes(bits)))
        return sum(rounds.values())

    def objective(self, widths: Widths) -> float:
        """Return the weighted sum of noise and time that `solve` minimises."""
        least, most = self.uniform(2), self.uniform(8)
        noise, wait = self._scales
        return noise * (self.variance(widths) - self.variance(most)) + wait * (self.time(widths) - self.time(least))

    def uniform(self, bits: int) -> Widths:
        """Return the same width for every message."""
        return {pair: np.full(len(beta), bits, np.uint8) for pair, beta in self.betas.items() if len(beta)}

    def best_uniform(self) -> Widths:
        """Return the best of the three choices with one width for all messages."""
        return min((self.uniform(bits) for bits in CLASSES), key=self.objective)

    def solve(self) -> Widths:
        """Return widths within about 1e-3 of the optimum, in O(messages log messages)."""
        widths = self.uniform(2)
        if self.trade > 0:
            for r in sorted({self._round(pair) for pair in widths}):
                self._solve_round([pair for pair in widths if self._round(pair) == r], widths)
        return widths

    def _solve_round(self, pairs: list[Pair], widths: Widths) -> None:
        offers = [self._upgrades(pair) for pair in pairs]
        noise, wait = self._scales
        begin = max(offer.start for offer in offers)
        times, gains = (np.concatenate([getattr(offer, name) for offer in offers]) for name in ("time", "gain"))
        order = np.argsort(times, kind="stable")
        times = np.maximum(times[order], begin)
        value = wait * times - noise * np.cumsum(gains[order])
        best = int(np.argmin(value))
        if value[best] >= wait * begin:
            return
        for offer in offers:
            self._buy(offer, float(times[best]), widths[offer.pair])

    def _buy(self, offer: _Upgrades, until: float, bits: np.ndarray) -> None:
        """Upgrade messages in order until the time `until`. If the next upgrade takes too long, try the next cheaper one instead."""
        bought = int(np.searchsorted(offer.time, until, side="right"))
        np.multiply.at(bits, offer.message[:bought], np.uint8(2))
        at = offer.time[bought - 1] if bought else offer.start
        for k in range(bought, len(offer.cost)):
            if offer.cost[k] < offer.cost[bought]:
                if at + self._slope(offer.pair) * offer.cost[k] <= until:
                    bits[offer.message[k]] *= 2
                return

    def _upgrades(self, pair: Pair) -> _Upgrades:
        beta, n = self.betas[pair], len(self.betas[pair])
        gain = np.concatenate([beta * (_ERRORS[0] - _ERRORS[1]), beta * (_ERRORS[1] - _ERRORS[2])])
        cost = np.repeat(np.diff(self.sizes).astype(np.float64), n)
        with np.errstate(divide="ignore", invalid="ignore"):
            order = np.argsort(-np.where(cost > 0, gain / cost, np.inf), kind="stable")
        message, gain, cost = np.tile(np.arange(n), 2)[order], gain[order], cost[order]
        start = self._milliseconds(pair, n * self.sizes[0])
        return _Upgrades(pair, message, gain, cost, start + self._slope(pair) * np.cumsum(cost), start)

    @cached_property
    def _scales(self) -> tuple[float, float]:
        """Return the weights of a unit of variance and of a millisecond in the objective."""
        least, most = self.uniform(2), self.uniform(8)
        variance, time = self.variance(least) - self.variance(most), self.time(most) - self.time(least)
        return self.trade / variance if variance > 0 else 0.0, (1 - self.trade) / time if time > 0 else 0.0

    def _round(self, pair: Pair) -> int:
        return (pair[1] - pair[0]) % len(self.links.theta)

    def _bytes(self, bits: np.ndarray) -> int:
        return int(np.bincount(np.searchsorted(CLASSES, bits), minlength=3) @ np.array(self.sizes))

    def _slope(self, pair: Pair) -> float:
        """Return the milliseconds per byte from one rank to another."""
        return float(self.links.theta[pair]) / 2**20

    def _milliseconds(self, pair: Pair, sent: int) -> float:
        return self._slope(pair) * sent + float(self.links.gamma[pair])


def links_of(name: str, comm: Comm) -> LinkSpeeds:
    """Return the speeds of all links of a communicator; collective.

    `name` is ``even``, ``measured``, with which a run depends on the speed of the machine, or the path of a JSON file, which holds "theta"
    (ms per MiB) and "gamma" (ms), p x p numbers each, one row a sender. Raises `UsageError` if the file cannot be read, or does not fit.
    """
    if name == "even":
        return LinkSpeeds.even(comm.size)
    return measured(comm) if name == "measured" else _read(Path(name), comm.size)


def measured(comm: Comm) -> LinkSpeeds:
    """Measure every link: a straight line through the times of a few sizes. The pairs of a round (i to i + r) send at once.

    Sends about 4 MiB for each ordered pair (kind "control").
    """
    p, lines = comm.size, [[0.0, 0.0] for _ in range(comm.size)]
    for r in range(1, p):
        seconds = [min(_seconds(comm, (comm.rank + r) % p, int(size)) for _ in range(_TIMES)) for size in _SIZES]
        slope, offset = np.polyfit(_SIZES / 2**20, 1e3 * np.array(seconds), 1)
        lines[(comm.rank + r) % p] = [max(float(slope), 1e-6), max(float(offset), 0.0)]
    everyone = comm.allgather(np.array(lines), "control")
    return LinkSpeeds(everyone[:, :, 0], everyone[:, :, 1])


def _seconds(comm: Comm, peer: int, size: int) -> float:
    parts = [np.zeros(size if r == peer else 0, np.uint8) for r in range(comm.size)]
    comm.barrier()
    began = time.perf_counter()
    comm.alltoall(parts, "control")
    return time.perf_counter() - began


def _read(path: Path, p: int) -> LinkSpeeds:
    try:
        table = json.loads(path.read_bytes())
        links = LinkSpeeds(np.array(table["theta"], np.float64), np.array(table["gamma"], np.float64))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"links must be even, measured, or a JSON file with theta and gamma; {path}: {error}") from error
    for part in links:
        if part.shape != (p, p) or not np.isfinite(part).all() or (part < 0).any():
            raise UsageError(f"theta and gamma of {path} must be {p} x {p} numbers, none negative; got shape {part.shape}")
    return links

"""Predict the seconds of exchanges by cause: bytes on links, latency, the processor of a rank, and copies of devices through the host."""

from __future__ import annotations

from dataclasses import dataclass

from .request import PlanRequest


@dataclass(frozen=True)
class Moving:
    """Seconds of exchanges. They add up, and a factor repeats them.

    Attributes
    ----------
    bytes : bytes on links, at their bandwidth
    latency : messages that wait for each other
    host : the processor of a rank, for collectives and messages
    staging : copies between devices and the host, where the ranks exchange host memory
    """

    bytes: float = 0.0
    latency: float = 0.0
    host: float = 0.0
    staging: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of all causes: they follow each other."""
        return self.bytes + self.latency + self.host + self.staging

    def __add__(self, other: Moving) -> Moving:
        return Moving(
            self.bytes + other.bytes, self.latency + other.latency, self.host + other.host, self.staging + other.staging
        )  # fmt: skip

    def __mul__(self, factor: float) -> Moving:
        return Moving(factor * self.bytes, factor * self.latency, factor * self.host, factor * self.staging)


def exchanged(request: PlanRequest, sent: float, calls: float, size: int, inside: float) -> Moving:
    """Predict collectives among `size` ranks, each with size - 1 messages; a share stays inside the node.

    `NetworkProfile.collective` is of an all-to-all with its lengths, which are two collectives.
    """
    if size == 1:
        return Moving()
    network, messages = request.connection(), size - 1
    waiting = inside * network.latency_inside.value + (1 - inside) * network.latency.value
    return Moving(
        bytes=sent * (inside / network.inside.value + (1 - inside) / network.between.value),
        latency=calls * messages * waiting,
        host=calls * (network.collective.value / 2 + messages * network.message.value),
        staging=_staged(request, sent),
    )


def reduced(request: PlanRequest, ranks: int) -> Moving:
    """Predict the all-reduce of the gradients of a step.

    Devices halve and double recursively (Thakur et al. 2005). On processors every rank sends each other one its share, twice.
    """
    if ranks == 1:
        return Moving()
    network = request.connection()
    on_one_node = ranks <= network.per_node
    rate, waiting = (network.inside, network.latency_inside) if on_one_node else (network.between, network.latency)
    sent = 2 * (ranks - 1) / ranks * 4 * request.parameters
    messages = 2 * (ranks - 1).bit_length() if request.has_devices else 2 * (ranks - 1)
    host = network.collective.value + messages * network.message.value
    return Moving(sent / rate.value, messages * waiting.value, host, _staged(request, sent))


def _staged(request: PlanRequest, sent: float) -> float:
    """Seconds in which bytes leave the device of the sender and reach that of the receiver, if the host exchanges them."""
    return 2 * sent / request.machine().host.value if request.has_devices and request.device_comm == "host" else 0.0

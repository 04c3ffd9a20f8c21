"""Train on the device: as on the CPU, the same twice, and the same with a stream that lags far behind the host.

The input of a first layer that the device computes where features lie is compared with the reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from communities import community_graph
from planted_relations import planted

from bulksample import LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.config import MODELS, RELATIONAL_MODELS
from bulksample.graph.minibatch import hash_arrays
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.nn.gather import gather_own_and_mean
from bulksample.training.cuda.device_features import DeviceFeatures
from bulksample.views.features import Features

from .checks import Checks
from .hardware import this_gpu

SMALL = {"hidden": 32, "batch_size": 64, "bulk_size": 2, "seed": 4, "evaluate": "none", "quiet": True}
LAG = 0.05  # seconds for which a stream is kept busy before each step: sampling a bulk takes less than a tenth of it
SPUN: dict[str, dict[str, Any]] = {
    "sage": {"input_layer": "fused"}, "gathered rows": {"input_layer": "gathered"}, "labor": {"sampler": "labor"},
    "the newest vertices": {"frontier": "new"}, "ladies": {"sampler": "ladies", "fanouts": (64, 64)},
    "samples of the host": {"backend": "native"}, "relations": {"model": "hetero-sage", "batch_size": 16},
}  # fmt: skip


def models() -> Checks:
    """Train every model for four epochs on the device and on the CPU; losses agree within rounding, and a run repeats to the bit."""
    gpu = this_gpu()

    def train(model: str, on_device: bool) -> float:
        epochs, where = 1 if gpu.small else 4, "auto" if on_device else "cpu"
        typed = model in RELATIONAL_MODELS
        asked = {**SMALL, "fanouts": (4, 3, 2), "epochs": epochs, "dropout": 0.0, "model": model, "device": where}
        graph = planted(times=True) if typed else community_graph(300 if gpu.small else 2000)
        asked["batch_size"] = 16 if typed and not gpu.small else SMALL["batch_size"]
        return float(make_trainer(TrainConfig.of(**asked), graph, compute=gpu.context() if on_device else None).run()["train_loss"])

    def compare(model: str) -> dict[str, float]:
        found = {"cuda": train(model, True), "again": train(model, True), "cpu": train(model, False)}
        repeats = model == "sage-pool" or found["cuda"] == found["again"]  # its gradient is summed by atomics
        if abs(found["cuda"] - found["cpu"]) > 2e-4 * (1 + abs(found["cpu"])) or not repeats:
            raise AssertionError(f"losses differ: {found}")
        return found

    return {**{model: partial(compare, model) for model in (*MODELS, *RELATIONAL_MODELS)}, "input layer in place": _in_place}


def _in_place() -> str:
    """Raise if own rows and means that the device computes where features lie differ from the reference, by width and storage type."""
    reference, cuda, n = backends.make("reference"), this_gpu().open(), 300 if this_gpu().small else 2000
    for width in (8, 33, 130):
        graph = community_graph(n, width=width)
        seeds = Selection.of([np.arange(0, n, 5)], n)
        (drawn,) = samplers.make("sage", (15,)).sample_bulk(LocalAdjacency(graph.adjacency, reference), seeds, Stream(1))
        for storage in ("given", "fp16", "bf16"):
            held = Features(graph, "l2", storage)
            x, scale = held.stored()
            expected = gather_own_and_mean(x, drawn.inner.vertices, drawn.input_hop, scale, backend=reference)
            features = DeviceFeatures(cuda, held, np.zeros(n), held.nbytes())
            this_gpu().synchronize()  # features are copied on another stream
            made = features.start_own_and_mean(drawn.inner.vertices, drawn.input_hop)
            with cuda.streams.train.on("read"):
                got = [part.cpu().numpy() for part in made()]
            if not all(np.array_equal(one, other) for one, other in zip(got, expected, strict=True)):
                raise AssertionError(f"own rows or means differ from the reference: {width} columns, features stored as {storage}")
    return "as the reference"


def spun() -> Checks:
    """Train with a stream kept busy before each step; losses and weights have the bits of a run that is not held up.

    Where training lags, memory that the host gives away too early is written over before a step reads it. Where sampling or fetching
    lags, a step that does not wait for them reads what is not yet written.
    """
    kinds = {name: partial(_trained, options) for name, options in SPUN.items()}
    kinds |= {f"{stage} lags": partial(_trained, {}, stage=stage) for stage in ("sample", "fetch")}
    kinds |= {"left in the middle of a bulk": partial(_left, {}), "left, samples of the host": partial(_left, SPUN["samples of the host"])}
    return {name: partial(_unmoved_by_lag, digest) for name, digest in kinds.items()}


def _unmoved_by_lag(digest: Callable[[float], str]) -> str:
    calm, late = digest(0.0), digest(LAG)
    if calm != late:
        raise AssertionError("losses or weights of a run whose device lags behind differ")
    return calm


def _trained(options: dict[str, Any], lag: float, stage: str = "train") -> str:
    """Return a digest of the loss and the weights after two epochs; before each step a stream is kept busy for `lag` seconds."""
    trainer = _trainer(options)
    step, stream = trainer._stepper.step, getattr(trainer.context.compute.cuda.streams, stage)

    def late(*arguments: Any) -> Any:
        with stream.on("spin"):
            this_gpu().spin(lag)
        return step(*arguments)

    trainer._stepper.step = late if lag else step
    loss = trainer.run()["train_loss"]
    return _digest([torch.tensor(loss), *trainer.model.state_dict().values()])


def _left(options: dict[str, Any], lag: float) -> str:
    """Return a digest of the losses of some mini-batches; the loader is left after each number of steps, its bulk half used."""
    trainer, losses = _trainer({"batch_size": 16, "bulk_size": 4, **options}), []
    context = trainer.context
    for stop in (1, 2, 3, 4, 5):
        steps = iter(context.batches)
        for _, step in zip(range(stop), steps, strict=False):
            if lag:
                this_gpu().spin(lag)
            losses.append(trainer.method.loss(context, step)[0].detach().clone())
        del step
        context.batches.drop()
        del steps
    context.compute.synchronize()
    return _digest(losses)


def _trainer(options: dict[str, Any]) -> Any:
    config = TrainConfig.of(**{**SMALL, "fanouts": (4, 3), "epochs": 2, **options})
    graph = planted(times=True) if "model" in options else community_graph(300 if this_gpu().small else 1000)
    return make_trainer(config, graph, compute=this_gpu().context())


def _digest(tensors: list[torch.Tensor]) -> str:
    sha = hashlib.sha256()
    hash_arrays(sha, ((str(number), tensor) for number, tensor in enumerate(tensors)))
    return sha.hexdigest()[:16]

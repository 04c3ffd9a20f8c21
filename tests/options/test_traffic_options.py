"""The form of what travels between ranks: bytes and rounded values, counted and computed by hand."""

import numpy as np
import torch
from plain import copied, graph, sage, trained, trainer
from rank_traffic import epoch, halo_rows, remote, sent_in_steps

from bulksample.distributed.comm.threads import on_threads
from bulksample.nn.layers import SageLayer
from bulksample.views.full_graph import LayerHaloExchange

N, WIDTH = 60, 8


def needed(drawn):
    """The remote rows of every mini-batch, over all ranks."""
    return [remote(vertices, own) for asked, own in zip(drawn.asked, drawn.own, strict=True) for vertices in asked]


def test_form_naive_sends_the_input_too(folder):
    """Strong: the last layer multiplies first, so rows of 3 classes travel, and their gradients. Naive: every layer sends its input.

    Each of the exchanges announces its counts, 8 bytes from either rank.
    """
    rows = halo_rows()
    assert sent_in_steps(folder) == 3 * (4 * rows * (3 + 3) + 2 * 16)
    assert sent_in_steps(folder, form="naive") == 3 * (4 * rows * (WIDTH + 4 + 4) + 3 * 16)


def test_overlap_computes_before_messages_have_come(folder, monkeypatch):
    """In the layer that exchanges rows: those without remote neighbors, and then the others."""
    events, receive, compute = [], LayerHaloExchange.receive, SageLayer.receive

    def received(self):
        events.append("message")
        return receive(self)

    def computed(self, *arguments):
        events.append("rows")
        return compute(self, *arguments)

    def order(**options):
        events.clear()
        made = on_threads(1, lambda comm: trainer(folder, comm, method="full", fanouts=(-1, -1), epochs=1, **options))[0]
        made.method.logits(made.context)
        return list(events)

    monkeypatch.setattr(LayerHaloExchange, "receive", received)
    monkeypatch.setattr(SageLayer, "receive", computed)
    assert order(overlap=True) == ["rows", "message", "rows"]
    assert order(overlap=False) == ["message", "rows", "message", "rows"]  # the second time it is there already


def test_feature_codec_rounds_all_rows_and_shortens_those_that_travel(folder):
    """f numbers of 2 bytes; or f of 1 byte with scale and offset of the row, 2 bytes each."""
    x = graph().features
    rounded = {"fp16": x.astype(np.float16).astype(np.float32), "bf16": torch.from_numpy(x).bfloat16().float().numpy()}
    for codec, row_bytes in {"fp16": 2 * WIDTH, "bf16": 2 * WIDTH, "int8": WIDTH + 4}.items():
        drawn = epoch(folder, 2, feature_codec=codec)
        assert drawn.fetched["features"] == row_bytes * sum(map(len, needed(drawn)))
        vertices, found = (np.concatenate([one for each in lists for one in each]) for lists in (drawn.asked, drawn.rows))
        if codec in rounded:
            np.testing.assert_array_equal(found, rounded[codec][vertices])
        else:
            assert (np.abs(found - x[vertices]) <= 1.1 * np.ptp(x[vertices], axis=1, keepdims=True) / 255 + 0.01).all()


def cached(counts, rows):
    """The ids of the most often fetched rows; of equal counts the lower id."""
    return np.lexsort((np.arange(N), -counts))[:rows]


def test_cache_bytes_keeps_rows_of_high_degree_at_hand(folder):
    rows = 12
    drawn = epoch(folder, 2, cache_bytes=rows * 4 * WIDTH + 5)
    hot = cached(np.bincount(graph().adjacency.indices, minlength=N), rows)
    left = sum(len(np.setdiff1d(vertices, hot)) for vertices in needed(drawn))
    assert 0 < left < sum(map(len, needed(drawn)))
    assert drawn.fetched["features"] == 4 * WIDTH * left


def test_cache_by_frequency_counts_the_first_minibatches(folder):
    """All mini-batches of the epoch are among the first eight of their rank, so what is counted is what is drawn."""
    rows, options = 12, {"batch_size": 5, "fanouts": (1, 1)}
    drawn = epoch(folder, 2, cache_bytes=rows * 4 * WIDTH, cache_by="frequency", **options)
    assert max(map(len, drawn.asked)) <= 8
    by = {
        "frequency": np.bincount(np.concatenate([vertices for asked in drawn.asked for vertices in asked]), minlength=N),
        "degree": np.bincount(graph().adjacency.indices, minlength=N),
    }
    left = {how: sum(len(np.setdiff1d(vertices, cached(counts, rows))) for vertices in needed(drawn)) for how, counts in by.items()}
    assert left["frequency"] != left["degree"]
    assert drawn.fetched["features"] == 4 * WIDTH * left["frequency"]


def test_fetch_together_fetches_a_row_once_for_several_minibatches(folder):
    together = 2
    drawn = epoch(folder, 2, fetch_together=together)
    rows = 0
    for asked, own in zip(drawn.asked, drawn.own, strict=True):
        for first in range(0, len(asked), together):
            rows += len(remote(np.concatenate(asked[first : first + together]), own))
    assert rows < sum(map(len, needed(drawn)))
    assert drawn.fetched["features"] == 4 * WIDTH * rows


def test_gradient_codec_rounds_what_is_added():
    """Two ranks with one mini-batch each: each rounds its gradient to fp16, the sum is rounded again, and seeds and loss stay fp32.

    An all-reduce of m bytes over two ranks sends 2 m.
    """
    source, options = graph(), {"sampler": "full", "fanouts": (-1, -1), "batch_size": 15, "gradient_codec": "fp16"}

    def rank(comm):
        made = trainer(source, comm, **options)
        weights, (batch,) = copied(made.model), list(made.context.batches)
        logits = sage(source, weights)[torch.from_numpy(batch.minibatch.seeds.astype(np.int64))]
        labels = torch.from_numpy(source.labels[batch.minibatch.seeds])
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        own = torch.cat([gradient.reshape(-1) for gradient in torch.autograd.grad(loss, weights)])
        report, _, made = trained(source, comm, **options)
        return own, len(labels), report, torch.cat([parameter.grad.reshape(-1) for parameter in made.model.parameters()])

    (one, seeds, report, got), (other, more, _, _) = on_threads(2, rank)
    expected = (one.half().float() + other.half().float()).half().float() / (seeds + more)
    exact = (one + other) / (seeds + more)
    assert (got - expected).abs().max() < 0.05 * (exact - expected).abs().max()
    assert report["bytes_sent"]["gradients"] == report["steps"] * 2 * (2 * len(one) + 4 * 3)

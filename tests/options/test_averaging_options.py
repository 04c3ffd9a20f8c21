"""The options of model averaging among ranks: intervals, weights and corrections, by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from plain import graph, trained, trainer, without_scores

from bulksample import CSR
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.partition import Partition
from bulksample.methods.averaging.method import Averaging
from bulksample.methods.averaging.variants import LLCG
from bulksample.training.weights import Adam

TMA = {"method": "random-tma", "batch_size": 4, "quiet": True}


def averages_of(monkeypatch, **options):
    """The steps of two trainers and the server that end in an average, and all steps."""
    ends, original = [], Averaging.average

    def noted(self, context, *arguments):
        ends.append(context.progress.steps + 1)
        return original(self, context, *arguments)

    monkeypatch.setattr(Averaging, "average", noted)
    report = on_threads(3, lambda comm: trained(graph(), comm, **TMA, **options)[0])[0]
    return ends, report["steps"]


def test_interval_is_the_steps_between_averages(monkeypatch):
    ends, steps = averages_of(monkeypatch, interval="3", epochs=5)
    assert ends == sorted({*range(3, steps + 1, 3), steps})


def test_interval_growth_lengthens_each_interval(monkeypatch):
    """1, 2, 4, 8, ... steps; the last step of the run always ends in an average."""
    ends, steps = averages_of(monkeypatch, interval="1", interval_growth=2.0, epochs=5)
    assert ends == sorted({*(2**k - 1 for k in range(1, 20) if 2**k - 1 <= steps), steps})


def parts_of(sizes, folder):
    """A file of parts of these sizes."""
    file = folder / "parts.npz"
    Partition(len(sizes), np.repeat(np.arange(len(sizes)), sizes)).save(file)
    return str(file)


def test_average_by_vertices_weighs_each_trainer_by_its_part(monkeypatch, tmp_path):
    """One average of two trainers with 45 and 15 vertices: 3/4 of the weights of one, 1/4 of the other's."""
    given, original, sizes = [], Averaging.average, (45, 15)

    def noted(self, context, vectors, *more):
        given.extend(np.array(vector, np.float64) for vector in vectors)
        return original(self, context, vectors, *more)

    monkeypatch.setattr(Averaging, "average", noted)
    options = {**TMA, "average_by": "vertices", "partition": parts_of(sizes, tmp_path), "epochs": 1, "lr": 0.1}
    made = on_threads(3, lambda comm: trained(without_scores(), comm, **options)[2])[0]
    found = torch.cat([parameter.detach().reshape(-1) for parameter in made.model.parameters()]).numpy()
    one, other = (vector[: len(found)] for vector in given)
    assert np.abs(one - other).max() > 0.1
    np.testing.assert_allclose(found, (45 * one + 15 * other) / 60, atol=1e-6)


def test_lost_parts_are_not_trained(tmp_path):
    sizes = (20, 10, 30)
    options = {**TMA, "lost_parts": 1, "partition": parts_of(sizes, tmp_path), "seeds": "all"}
    ranks = on_threads(3, lambda comm: trainer(graph(), comm, **options).context.view)
    assert [view.adjacency.n for view in ranks[1:]] == [20, 10]


def test_clusters_stay_in_one_part():
    """Six cliques make six clusters, so parts of whole clusters cut no edge; 32 clusters would tear the cliques."""
    v = np.arange(60)
    rows, columns = (ends.ravel() for ends in np.meshgrid(v, v, indexing="ij"))
    joined = (rows // 10 == columns // 10) & (rows != columns)
    cliques = replace(graph(), adjacency=CSR.from_edges(rows[joined], columns[joined], (60, 60)))
    ranks = on_threads(3, lambda comm: trainer(cliques, comm, **TMA | {"method": "super-tma"}, clusters=6).context.view)
    assert sum(view.adjacency.whole_matrix.nnz for view in ranks[1:]) == cliques.adjacency.nnz
    assert [view.adjacency.n for view in ranks[1:]] == [30, 30]


def corrections(monkeypatch, **options):
    """For each correction of LLCG, how far it moves the number that it moves most, and the steps of its optimizer."""
    found, steps, correct, step = [], [], LLCG.correct, Adam.step

    def flat(context):
        return torch.cat([parameter.detach().reshape(-1).clone() for parameter in context.model.parameters()])

    def corrected(self, context):
        before, counted = flat(context), len(steps)
        correct(self, context)
        found.append((float((flat(context) - before).abs().max()), len(steps) - counted))

    def stepped(self, *arguments):
        steps.append(self)
        return step(self, *arguments)

    monkeypatch.setattr(LLCG, "correct", corrected)
    monkeypatch.setattr(Adam, "step", stepped)
    trained(graph(), **{**TMA, "method": "llcg", "lr": 0.001, **options})
    return found


def test_server_steps_follow_every_average(monkeypatch):
    assert [steps for _, steps in corrections(monkeypatch, server_steps=3, epochs=2)] == [3, 3]


def test_server_lr_is_the_first_step_of_the_servers_adam(monkeypatch):
    """The first step of Adam moves every weight with a gradient by the learning rate."""
    ((moved, _),) = corrections(monkeypatch, server_lr=0.07, epochs=1)
    assert moved == pytest.approx(0.07, rel=1e-3)

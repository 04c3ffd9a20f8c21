"""The answer of a trainer enters an average only if it is finite and in proportion, with the weight that the server knows."""

import numpy as np
import pytest
import torch
from communities import community_graph
from scipy.sparse import csr_matrix
from test_serving import SMALL, WHOLE, joining
from trainers import free_port
from waiting import PATIENCE, join

from bulksample.data.link_split import hold_out
from bulksample.errors import UsageError
from bulksample.methods.averaging import remote_trainer
from bulksample.methods.averaging.frames import Kind
from bulksample.methods.averaging.participant import load_vector, vector_of
from bulksample.methods.averaging.trainer_registry import vector_frame
from bulksample.methods.averaging.trainer_server import TrainerServer, fault_of
from bulksample.methods.averaging.variants import LLCG, PSGDPA
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer


def fault(found, start=(3.0, 4.0), statistics=(0.0,), scalars=(1.0, 2.0, 0.0, 0.0), max_update=10.0):
    """The fault in an answer of two parameters and one statistic."""
    vectors = [np.array([*one, *rest], np.float32) for one, rest in ((found, [*statistics, *scalars]), (start, [0.0] * 5))]
    return fault_of(vector_frame(Kind.ANSWER, vectors[0], 0), vector_frame(Kind.PUSH, vectors[1], 0), 2, max_update)


@pytest.mark.parametrize(("found", "options", "message"), [
    ((3.0, 4.0), {}, ""), ((33.0, 44.0), {}, ""),  # |(30, 40)| = 50 = 10 x |(3, 4)|
    ((33.1, 44.0), {}, "an update of norm 50.1; at most 10 x 5 is accepted"), ((33.1, 44.0), {"max_update": 11.0}, ""),
    ((0.1, 9.9), {"start": (0.1, 0.1)}, ""), ((0.1, 10.2), {"start": (0.1, 0.1)}, "norm 10.1; at most 10 x 1 "),  # |start| < 1 counts as 1
    ((3e38, 4.0), {}, "at most 10 x 5 "), ((float("nan"), 4.0), {}, "weights that are not finite"), ((3.0, float("inf")), {}, "not finite"),
    ((3.0, 4.0), {"statistics": [1e9]}, ""), ((3.0, 4.0), {"statistics": [float("inf")]}, "not finite"),
    ((3.0, 4.0), {"scalars": (1.0, 2e30, 0.0, 0.0)}, "a loss or a count above 1e+30"),
    ((3.0, 4.0), {"scalars": (-2e30, 1.0, 0.0, 0.0)}, "a loss or a count above 1e+30"),
    ((3.0, 4.0), {"scalars": (1.0, float("nan"), 0.0, 0.0)}, "not finite"),
])  # fmt: skip
def test_answers_out_of_proportion_are_named(found, options, message):
    got = fault(found, **options)
    assert message in got
    assert bool(got) == bool(message)


def run(graph, trainers=2, **options):
    """Return the server and its report, and what its trainers returned."""
    address, results = f"127.0.0.1:{free_port()}", []
    threads = [joining(address, graph, results) for _ in range(trainers)]
    asked = {**SMALL, **WHOLE, "tolerate_failures": True, "trainers": trainers, "listen": address, "timeout": PATIENCE, "grace": PATIENCE}
    server = make_trainer(TrainConfig.of(**asked | options), graph)
    report = server.run()
    join(*threads)
    return server, report


@pytest.mark.parametrize(("average_by", "weights"), [("vertices", None), ("steps", [3.0, 3.0]), ("responders", [1.0, 1.0])])
def test_weights_of_an_average_are_those_of_the_server_whatever_trainers_send(monkeypatch, average_by, weights):
    """Trainers send large weights, step counts and vectors of their own; the average has the closed form over the server's parts."""
    seen, whole = [], PSGDPA.average

    def average(self, context, vectors):
        seen.append([vector.copy() for vector in vectors])
        return whole(self, context, vectors)

    def lying(kind, vector, number, steps=0):
        return vector_frame(kind, np.append(vector[:-1], np.float32(1e6 * (vector[0] > 0) + 5)), number, 10**6)

    monkeypatch.setattr(PSGDPA, "average", average)
    monkeypatch.setattr(remote_trainer, "vector_frame", lying)
    server, report = run(community_graph(), method="psgd-pa", average_by=average_by, epochs=1, eval_every=100)
    (vectors,) = seen
    parts = server.method.participant._parts
    expected = np.array(weights or [float(len(parts.members(part))) for part in range(2)])
    assert [vector[-1] for vector in vectors] == expected.tolist()
    mean = expected @ np.stack(vectors).astype(np.float64)[:, :-4] / expected.sum()
    assert np.array_equal(vector_of(server.model), mean.astype(np.float32))
    assert report["averages"] == 1


@pytest.mark.parametrize("task", ["nodes", "links"])
def test_the_steps_of_an_epoch_follow_from_the_examples_of_a_part(task, tmp_path):
    """ceil(examples / batch size): seeds of the split, or stored edges with both ends in the part that are no loops."""
    graph = hold_out(community_graph(), "to", 0.1, 0.1, 5, seed=0)
    graph.save(tmp_path / "g")
    asked = {**SMALL, "method": "psgd-pa", "task": task, "tolerate_failures": True, "trainers": 2, "listen": f"127.0.0.1:{free_port()}"}
    asked |= {"average_by": "steps", "interval": "epoch", "batch_size": 7}
    server, a = make_trainer(TrainConfig.of(**asked), tmp_path / "g").method.participant, graph.adjacency
    dense = csr_matrix((np.ones(len(a.indices)), a.indices, a.indptr), a.shape).toarray()
    for part in range(2):
        members = server._parts.members(part)
        server._members(part)
        edges = dense[np.ix_(members, members)]
        count = graph.masks["train"][members].sum() if task == "nodes" else edges.sum() - np.trace(edges)
        assert server._weights[part] == [np.ceil(count / 7)]
    server._listener.close()


def test_an_average_that_is_not_finite_is_never_pushed(monkeypatch, capfd):
    def spoilt(self, context):
        if self.participant.registry.round == 1:
            load_vector(context.model, np.full(len(vector_of(context.model)), np.nan, np.float32))

    pushed, sent = [], remote_trainer.RemoteTrainer._continue_from

    def taken(self, context, push):
        pushed.append((push.round, push.numbers("float32")))
        sent(self, context, push)

    monkeypatch.setattr(PSGDPA, "correct", spoilt)
    monkeypatch.setattr(remote_trainer.RemoteTrainer, "_continue_from", taken)
    server, _ = run(community_graph(), trainers=1, method="psgd-pa", epochs=4, quiet=False)
    assert all(np.isfinite(vector).all() for _, vector in pushed)
    by_round = dict(pushed)
    assert np.array_equal(by_round[2], by_round[1])  # the weights stay, and training goes on
    assert not np.array_equal(by_round[3], by_round[2])
    assert np.isfinite(vector_of(server.model)).all()
    assert "the average of round 1 is not finite; the weights stay: use a lower lr" in capfd.readouterr().err


def test_a_correction_that_is_not_finite_spoils_no_later_one(monkeypatch, capfd):
    """The moments of the server's Adam are finite again after a rejected average."""
    whole = LLCG.correct

    def spoilt(self, context):
        if self.participant.registry.round == 1:
            load_vector(context.model, np.full(len(vector_of(context.model)), np.nan, np.float32))
        whole(self, context)

    monkeypatch.setattr(LLCG, "correct", spoilt)
    server, _ = run(community_graph(), trainers=1, method="llcg", epochs=4, quiet=False)
    said = capfd.readouterr().err
    assert [number for number in range(4) if f"the average of round {number} is not finite" in said] == [1]
    moments = server.method._adam.state_dict()["state"].values()
    assert moments
    assert all(torch.as_tensor(value).isfinite().all() for state in moments for value in state.values())


def test_a_trainer_whose_weights_are_out_of_proportion_is_refused_and_the_others_go_on(monkeypatch, capfd):
    whole, errors = remote_trainer.RemoteTrainer._answer, []

    def wild(self, context, number):
        if self.part == 1 and number == 1:
            load_vector(context.model, 1e6 * vector_of(context.model))
        try:
            whole(self, context, number)
        except UsageError as error:
            errors.append(str(error))
            self.ended = True

    monkeypatch.setattr(remote_trainer.RemoteTrainer, "_answer", wild)
    _, report = run(community_graph(), method="random-tma", epochs=3, quiet=False)
    assert [one["responders"] for one in report["rounds"]] == [[0, 1], [0], [0]]
    assert (report["refused"], report["lost"]) == (1, 1)
    assert "sent an update of norm" in errors[0]
    said = capfd.readouterr().err
    assert "trainer 1 (127.0.0.1:" in said
    assert "was lost in round 1: sent an update of norm" in said


def test_an_answer_has_the_weight_of_the_vertices_that_it_was_trained_on(monkeypatch):
    """The server moves vertices after a round; trainers use them from their next epoch on, and answer before."""
    trained, averaged, whole, answer, step = {}, {}, PSGDPA.average, remote_trainer.RemoteTrainer._answer, TrainerServer.end_step

    def average(self, context, vectors):
        averaged[self.participant.registry.round] = [vector[-1] for vector in vectors]
        return whole(self, context, vectors)

    def answering(self, context, number):
        trained.setdefault(number, {})[self.part] = float(context.view.adjacency.n)
        answer(self, context, number)

    def moving(self, *given):
        totals = step(self, *given)
        self._parts._present[self._parts.members(0)[:20]] = 1
        self._send_members([0, 1])
        return totals

    monkeypatch.setattr(PSGDPA, "average", average)
    monkeypatch.setattr(remote_trainer.RemoteTrainer, "_answer", answering)
    monkeypatch.setattr(TrainerServer, "end_step", moving)
    asked = {"method": "psgd-pa", "average_by": "vertices", "interval": "epoch", "sampler": "full", "batch_size": 1000}
    run(community_graph(), epochs=4, eval_every=100, **asked)
    assert len(averaged) == 4
    # a trainer may have begun an answer that the server, at the end of its last epoch, no longer took
    assert averaged == {number: [parts[part] for part in sorted(parts)] for number, parts in trained.items() if number in averaged}
    assert len({tuple(weights) for weights in averaged.values()}) > 1  # some vertices did move

"""A step on a device keeps the host out: its sums are read some steps later, with the losses, stops and errors of a CPU."""

import pytest
import torch
from communities import community_graph, with_columns_of_labels
from emulation.apart import COPIES, READS, Apart, Apartness, ApartPlace
from emulation.host import compiler
from recorder import Recorder

from bulksample import UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.compute import ComputeContext
from bulksample.training.step import STEPS, StepSums

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
SMALL = {"fanouts": (3, 2), "hidden": 8, "batch_size": 4, "bulk_size": 2, "epochs": 2, "threads": 1, "seed": 4, "quiet": True}


class Watched:
    """A trainer on an emulated device that notes what each step copies and waits for; `stop` is a step that asks to stop."""

    def __init__(self, graph, comm=None, stop=None, watch=None, **options):
        self.recorder, self.reads, self.copies = Recorder(), [], []
        with Apartness():
            place = ApartPlace()
            self.trainer = make_trainer(TrainConfig.of(**{**SMALL, **options}), graph, comm, [self.recorder], place)
            if watch:
                watch(place.cuda.kernels)
            step = self.trainer._stepper.step

            def noting(batches, epoch, number, stops):
                before = len(READS), len(COPIES)
                sums = step(batches, epoch, number, stops or (epoch, number) == stop)
                self.reads.append(READS[before[0] :])
                self.copies.append(COPIES[before[1] :])
                return sums

            self.trainer._stepper.step = noting
            reads, copies = len(READS), len(COPIES)
            self.report = self.trainer.run()
            self.waits, self.moved = READS[reads:], COPIES[copies:]


OPTIONS = [{}, *(pytest.param(more, marks=pytest.mark.long) for more in (
    {"model": "gat"}, {"sampler": "ladies", "fanouts": (9, 9)}, {"model": "sage-pool", "batch_norm": True},
))]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS)
def test_a_step_does_not_wait_for_the_device(options):
    """It sends labels and their places; a bulk waits in its sampler besides, which is no operation of torch."""
    seen = Watched(community_graph(150), evaluate="none", **options)
    steps = len(seen.reads) // 2
    assert steps > 2 * STEPS
    assert seen.reads == [[]] * 2 * steps
    assert seen.copies == [["send"] * 2] * 2 * steps
    reads = 2 * -(-steps // STEPS)
    assert (seen.waits, seen.moved.count("read")) == (["event"] * reads, reads)


@pytest.mark.parametrize("target", ["multilabel", pytest.param("regression", marks=pytest.mark.long)])
def test_labels_that_are_missing_in_part_are_counted_on_the_host(target):
    graph = with_columns_of_labels(community_graph(100), target)
    seen = Watched(graph, evaluate="none", epochs=1, model="gcn")
    assert not any(seen.reads)
    assert seen.recorder.losses == losses_on_host(graph, evaluate="none", epochs=1, model="gcn")


def losses_on_host(graph, comm=None, **options):
    recorder = Recorder()
    make_trainer(TrainConfig.of(**{**SMALL, **options}), graph, comm, [recorder], ComputeContext()).run()
    return recorder.losses


@pytest.mark.long
def test_a_loss_that_is_not_finite_is_noticed_with_its_step():
    graph, told = community_graph(150), []
    for run in (losses_on_host, Watched):
        with pytest.raises(UsageError, match=r"the loss is (nan|inf) in epoch 0, step \d+; use a lower lr") as error:
            run(graph, lr=1e30, evaluate="none")
        told.append(str(error.value))
    assert told[0] == told[1]


@pytest.mark.long
def test_a_rank_that_stops_alone_stops_at_once_and_resumes(tmp_path):
    graph, options = community_graph(150), {"model": "gcn", "evaluate": "none"}
    whole = losses_on_host(graph, **options)
    one = Watched(graph, stop=(0, 3), checkpoint=str(tmp_path / "a"), **options)
    assert one.report["stopped"]
    rest = Watched(graph, checkpoint=str(tmp_path / "a"), resume="auto", **options)
    assert one.recorder.losses + rest.recorder.losses == whole
    assert not rest.report["stopped"]


@pytest.mark.long
def test_ranks_stop_after_the_same_step():
    graph = community_graph(150)
    found = on_threads(2, lambda comm: Watched(graph, comm, (0, 1) if comm.rank else None, evaluate="none").report)
    assert [report["stopped"] for report in found] == [True, True]
    assert found[0]["steps"] == found[1]["steps"]


def test_sums_are_read_when_as_many_more_are_queued():
    """Sums on a device come in order, each once; those on the host at once."""
    sums, known, arrived = StepSums(ApartPlace()), [], []
    for step in range(3 * STEPS + 1):
        sums.add(step, Apart(torch.full((3,), float(step))))
        found = sums.read(now=False)
        known += found
        arrived.append(len(found))
    assert [step for step, count in enumerate(arrived) if count] == [2 * STEPS - 1, 3 * STEPS - 1]
    known += sums.read(now=True)
    assert [one.step for one in known] == [float(one.sums[1]) for one in known] == list(range(3 * STEPS + 1))
    assert sums.read(now=True) == []
    sums.add(7, torch.ones(3))
    assert [(one.step, one.late) for one in sums.read(now=False)] == [(7, False)]

"""A run goes on with other numbers of ranks: the same mini-batches, and the same bits for powers of two."""

import threading

import pytest
import torch
from communities import community_graph
from launch import run_ranks
from recorder import Crash, CrashesAt, Recorder
from training_runs import weights_of
from waiting import PATIENCE

from bulksample import UsageError
from bulksample.data import store
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training import checkpoint
from bulksample.training.method import Method

# 23 mini-batches: two full steps of eight ranks, and one of seven mini-batches
RUN = {"fanouts": (4, 3), "hidden": 8, "batch_size": 6, "lr": 0.02, "threads": 1, "dropout": 0.5, "batch_norm": True, "epochs": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("elastic") / "graph"
    store.save(community_graph(), place)
    return place


@pytest.fixture
def trained_on(monkeypatch):
    """The mini-batches that the ranks of all runs trained on: (epoch, step, id, digest) of every mini-batch."""
    seen, lock, loss = set(), threading.Lock(), Method.loss

    def noted(self, context, batch):
        if batch.minibatch is not None:
            with lock:
                seen.add((context.epoch, batch.minibatch.id // 8, batch.minibatch.id, batch.minibatch.digest()))
        return loss(self, context, batch)

    monkeypatch.setattr(Method, "loss", noted)
    return seen


def trained(source, comm, crash_at=None, **options):
    recorder = CrashesAt(crash_at) if crash_at else Recorder()
    trainer = make_trainer(TrainConfig.of(**{**RUN, **options}), source, comm, [recorder])
    report = trainer.run()
    return recorder.losses, weights_of(trainer), report


@pytest.fixture(scope="module")
def unbroken(folder):
    """The run of eight ranks that nothing stops."""
    return on_threads(8, lambda comm: trained(folder, comm))[0]


def stages(folder, tmp_path, *ranks, **options):
    """Train an epoch more on each number of ranks in turn; return the losses and the weights of the last."""
    losses = []
    for epochs, p in enumerate(ranks, 1):
        asked = {"epochs": epochs, "checkpoint": str(tmp_path), "resume": "auto", **options.get(str(p), {})}
        found, weights, report = on_threads(p, lambda comm, asked=asked: trained(folder, comm, **asked))[0]
        losses += found
        assert (report["ranks"], report["virtual_ranks"]) == (p, 8)
    return losses, weights


@pytest.mark.long
def test_8_4_2_and_1_ranks_give_the_same_bits(folder, unbroken, trained_on, tmp_path):
    losses, weights = stages(folder, tmp_path, 8, 4, 2, 1)
    assert losses == unbroken[0]
    assert (weights == unbroken[1]).all()
    resumed = set(trained_on)
    trained_on.clear()
    on_threads(8, lambda comm: trained(folder, comm))
    assert resumed == trained_on
    assert len(resumed) == 4 * 23


@pytest.mark.long
def test_3_ranks_share_8_minibatches_and_may_become_8_again(folder, unbroken, trained_on, tmp_path):
    """Three ranks take two, three and three of them: the same mini-batches, and sums within rounding."""
    losses, _ = stages(folder, tmp_path, 8, 4, 3, 8)
    assert losses[:6] == unbroken[0][:6]
    assert losses == pytest.approx(unbroken[0], rel=1e-4)
    assert len(trained_on) == 4 * 23


@pytest.mark.long
def test_another_placement_and_replication_go_on_too(folder, unbroken, tmp_path):
    placements = {"4": {"graph": "partitioned", "replication": 2}, "2": {"graph": "partitioned", "partition": "random"}}
    losses, weights = stages(folder, tmp_path, 8, 4, 2, 1, **placements)
    assert losses == unbroken[0]
    assert (weights == unbroken[1]).all()


@pytest.mark.parametrize("p", [4, pytest.param(2, marks=pytest.mark.long)])
def test_a_run_stopped_in_the_middle_of_an_epoch_goes_on(folder, unbroken, tmp_path, p):
    with pytest.raises(Crash, match="as asked"):
        on_threads(8, lambda comm: trained(folder, comm, crash_at=None if comm.rank else 5, checkpoint=str(tmp_path), checkpoint_every=1))
    losses, weights, _ = on_threads(p, lambda comm: trained(folder, comm, checkpoint=str(tmp_path), resume="auto"))[0]
    assert losses == unbroken[0][4:]
    assert (weights == unbroken[1]).all()


def test_virtual_ranks_on_one_rank_are_the_run_of_eight(folder, unbroken):
    losses, weights, _ = trained(folder, None, virtual_ranks=8)
    assert losses == unbroken[0]
    assert (weights == unbroken[1]).all()


@pytest.mark.parametrize("options", [{"fetch_together": 3, "bulk_size": 5}, {"sampling_threads": 0, "sampler": "labor", "model": "gcn"}])
def test_windows_and_samplers_keep_the_minibatches_of_a_step(folder, options):
    asked = {"epochs": 1, "graph": "partitioned", **options}
    four = on_threads(4, lambda comm: trained(folder, comm, **asked))[0]
    two = on_threads(2, lambda comm: trained(folder, comm, virtual_ranks=4, **asked))[0]
    assert four[0] == two[0]


def test_links_go_on_too(tmp_path):
    graph = hold_out(community_graph(), "to", 0.1, 0.1, 5, seed=0)
    graph.save(tmp_path / "links")
    asked = {"task": "links", "epochs": 1, "batch_size": 300, "eval_every": 0}
    four = on_threads(4, lambda comm: trained(tmp_path / "links", comm, **asked))[0]
    alone = trained(tmp_path / "links", None, virtual_ranks=4, **asked)
    assert four[0] == alone[0]


@pytest.mark.parametrize(
    "method",
    ["grappa", *(pytest.param(name, marks=pytest.mark.long) for name in ("cofree", "bns", "random-tma", "retexo-federated"))],
)
def test_a_method_that_keeps_parts_on_ranks_is_refused_by_name(folder, tmp_path, method):
    asked = {"method": method, "epochs": 1, "checkpoint": str(tmp_path), "batch_norm": False}
    on_threads(2, lambda comm: trained(folder, comm, **asked))
    with pytest.raises(UsageError, match=f"ranks was 2 and is 3 now, and method '{method}' keeps a part"):
        on_threads(3, lambda comm: trained(folder, comm, **{**asked, "resume": "auto"}))
    with pytest.raises(UsageError, match=f"method '{method}' does not share mini-batches; got virtual_ranks 3 with 2 ranks"):
        on_threads(2, lambda comm: trained(folder, comm, **asked, virtual_ranks=3))


def test_the_whole_graph_goes_on_within_rounding(folder, tmp_path):
    asked = {"method": "full", "batch_norm": False}
    whole = on_threads(2, lambda comm: trained(folder, comm, **asked))[0]
    on_threads(2, lambda comm: trained(folder, comm, **asked | {"epochs": 2, "checkpoint": str(tmp_path)}))
    rest = on_threads(3, lambda comm: trained(folder, comm, **asked, checkpoint=str(tmp_path), resume="auto"))[0]
    assert rest[0] == pytest.approx(whole[0][2:], rel=1e-4)


def test_numbers_of_ranks_that_do_not_fit_are_refused(folder, tmp_path):
    kept = {"checkpoint": str(tmp_path), "epochs": 1}
    on_threads(2, lambda comm: trained(folder, comm, **kept))
    with pytest.raises(UsageError, match="a step has the mini-batches of 2 virtual ranks, too few for 3 ranks; use at most 2"):
        on_threads(3, lambda comm: trained(folder, comm, **kept, resume="auto"))
    with pytest.raises(UsageError, match="virtual_ranks was 2 and is 4 now"):
        trained(folder, None, **kept, resume="auto", virtual_ranks=4)
    with pytest.raises(UsageError, match="too few for 2 ranks"):
        on_threads(2, lambda comm: trained(folder, comm, virtual_ranks=1))


def test_a_checkpoint_of_an_earlier_version_names_its_ranks_in_the_position_of_the_loader(folder, tmp_path):
    on_threads(4, lambda comm: trained(folder, comm, epochs=1, checkpoint=str(tmp_path)))
    path, (tensors, state) = checkpoint.newest(tmp_path)
    assert (state.pop("virtual_ranks"), state["loader"]["ranks"]) == (4, 4)
    checkpoint.save(tmp_path, int(path.name[5:]), tensors, {key: value for key, value in state.items() if key not in ("format", "sha256")})
    assert trained(folder, None, epochs=2, checkpoint=str(tmp_path), resume="auto")[2]["virtual_ranks"] == 4


@pytest.mark.long
def test_processes_go_on_with_the_bits_of_threads(folder, unbroken, tmp_path):
    """Four processes by mpirun and two by torchrun continue what eight threads began."""
    on_threads(8, lambda comm: trained(folder, comm, epochs=1, checkpoint=str(tmp_path)))
    for p, epochs, launcher in ((4, 2, "mpirun"), (2, 4, "torchrun")):
        line = ["-m", "bulksample", "train", str(folder), "--quiet", "--checkpoint", str(tmp_path), "--resume", "auto"]
        line += ["--timeout", str(PATIENCE)]
        own = {**RUN, "fanouts": "4,3", "epochs": epochs, "batch_norm": None}
        line += [word for name, value in own.items() for word in (f"--{name.replace('_', '-')}", *([] if value is None else [str(value)]))]
        ended = run_ranks(p, line, launcher=launcher, env={"OMP_NUM_THREADS": "1"})
        assert ended.code == 0, ended
    tensors, _ = checkpoint.newest(tmp_path)[1]
    best = torch.cat([tensors[f"model.{name}"].reshape(-1) for name in _names(folder)])
    assert (best == _last_weights(folder)).all()


def _names(folder):
    trainer = make_trainer(TrainConfig.of(**RUN), folder)
    return [name for name, _ in trainer.model.named_parameters()]


def _last_weights(folder):
    """The newest weights, not the best ones, of the run of eight ranks."""
    return on_threads(8, lambda comm: trained(folder, comm, eval_every=0))[0][1]

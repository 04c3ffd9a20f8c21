"""Trainers that may die, be late or join again: rounds go on with those who answer, and intervals of steps repeat what ranks do."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from communities import community_graph
from launch import ROOT, run_alone
from sweeps import sweep
from trainers import RUN_TOKEN, free_port, invited_once_it_listens
from waiting import PATIENCE, join, until

from bulksample import UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.errors import PeerLost
from bulksample.methods.averaging import remote_trainer
from bulksample.methods.averaging.frames import Frame, Kind
from bulksample.methods.averaging.handshake import TOKEN
from bulksample.methods.averaging.participant import vector_of
from bulksample.methods.averaging.remote_trainer import invited_config
from bulksample.methods.averaging.trainer_server import TrainerServer
from bulksample.methods.averaging.variants import RandomTMA
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.rng import MAX_EPOCHS
from bulksample.training.context import TrainingContext

SMALL = {"fanouts": (5, 5), "hidden": 16, "batch_size": 16, "epochs": 4, "lr": 0.01, "dropout": 0.0, "threads": 1, "quiet": True}
WHOLE = {"sampler": "full", "batch_size": 1000, "interval": "3"}  # a step is an epoch: steps of ranks and of processes are alike


def joining(address, graph, results):
    """A trainer on a thread, from the moment that the server listens."""

    def body():
        trainer = make_trainer(invited_once_it_listens(address), graph)
        results.append((trainer, trainer.run()))

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def served(graph, trainers, **options):
    address, results = f"127.0.0.1:{free_port()}", []
    threads = [joining(address, graph, results) for _ in range(trainers)]
    asked = {**SMALL, "tolerate_failures": True, "trainers": trainers, "listen": address, "timeout": PATIENCE, "grace": PATIENCE, **options}
    server = make_trainer(TrainConfig.of(**asked), graph)
    report = server.run()
    join(*threads)
    return server, report, results


@pytest.mark.parametrize("method", ["random-tma", "psgd-pa", "llcg"])
@sweep("average_by", ["responders", "vertices", "steps"])
def test_intervals_of_steps_are_those_of_ranks_to_the_bit(method, average_by):
    graph = community_graph()
    asked = {"method": method, "average_by": average_by, **WHOLE}
    server, report, results = served(graph, 2, **asked)
    ranks = on_threads(3, lambda comm: make_trainer(TrainConfig.of(**SMALL | asked | {"epochs": 12, "eval_every": 3}), graph, comm).run())[
        0
    ]
    assert report["test_accuracy"] == ranks["test_accuracy"]
    size = len(vector_of(server.model))
    assert report["bytes_sent"]["model"] == 4 * 2 * 8 * (size + 4) + 2 * 4 * (size + 4)  # rounds, and the first weights
    assert report["bytes_sent"]["topology"] == 4 * graph.n
    assert [one["responders"] for one in report["rounds"]] == [[0, 1]] * 4
    assert all(one["steps"] == {"0": 3, "1": 3} for one in report["rounds"])
    assert sorted(summary["part"] for _, summary in results) == [0, 1]
    assert all(summary["ended"] for _, summary in results)


def test_weights_of_intervals_of_steps_are_those_of_ranks():
    """Dropout too: trainers of one step draw words of their own, those of the ranks that have their parts in a job."""
    graph = community_graph()
    asked = {"method": "super-tma", "eval_every": 100, **WHOLE, "dropout": 0.5}
    server, _, results = served(graph, 3, **asked)

    def rank(comm):
        trainer = make_trainer(TrainConfig.of(**SMALL | asked | {"epochs": 12}), graph, comm)
        trainer.run()
        return vector_of(trainer.model)

    expected = on_threads(4, rank)
    assert all(np.array_equal(vector_of(server.model), one) for one in expected)
    assert len(results) == 3


def test_it_learns():
    graph = community_graph(n=600, degree=12, noise=1.2)
    _, report, _ = served(graph, 2, method="super-tma", interval="epoch", epochs=8, dropout=0.2)
    assert report["averages"] == 8
    assert report["test_accuracy"] > 0.6
    assert (report["joined"], report["lost"]) == (2, 0)


def test_rounds_by_the_clock():
    """There are as many rounds as epochs, and each averages the trainers that answered, after any number of steps."""
    _, report, _ = served(community_graph(), 2, method="super-tma", interval="0.2s", epochs=5, average_by="vertices")
    assert [one["responders"] for one in report["rounds"]] == [[0, 1]] * 5
    assert all(steps > 0 for one in report["rounds"] for steps in one["steps"].values())
    assert 0 < report["train_loss"] < 5


def test_no_round_counts_the_wait_for_trainers(monkeypatch):
    began, whole = [], RandomTMA.begin_round

    def begin_round(self, context):
        began.append((self.participant.serves, self.participant.describe().get("joined")))
        whole(self, context)

    monkeypatch.setattr(RandomTMA, "begin_round", begin_round)
    _, report, results = served(community_graph(), 2, method="random-tma", epochs=2, **WHOLE)
    assert [joined for serves, joined in began if serves] == [2, 2]
    assert report["train_loss"] > 0
    assert [summary["train_loss"] for _, summary in results] == [0.0] * 2  # the loss of a round is in the report of the server


def test_a_server_goes_on_from_its_checkpoint(tmp_path):
    graph, asked = community_graph(), {"method": "random-tma", **WHOLE, "checkpoint": str(tmp_path / "c")}
    first, report, _ = served(graph, 2, epochs=2, eval_every=100, **asked)
    assert [one["round"] for one in report["rounds"]] == [0, 1]
    last = vector_of(first.model)
    address = f"127.0.0.1:{free_port()}"
    more = {**SMALL, **asked, "tolerate_failures": True, "trainers": 2, "listen": address, "resume": "auto", "eval_every": 100}
    assert np.array_equal(vector_of(make_trainer(TrainConfig.of(**more), graph).model), last)
    _, report, _ = served(graph, 2, epochs=4, resume="auto", eval_every=100, **asked)
    assert report["resumed"]
    assert [one["round"] for one in report["rounds"]] == [2, 3]
    elsewhere = {"epochs": 4, "listen": f"127.0.0.1:{free_port()}"}
    ended = make_trainer(TrainConfig.of(**more | elsewhere), graph).run()  # which waits for nobody
    assert (ended["resumed"], ended["rounds"], ended["joined"]) == (True, [], 0)


def test_a_trainer_that_joins_later_draws_words_of_its_own(tmp_path, monkeypatch):
    """Words of dropout, and seeds of loaders: none of a trainer of the first two rounds comes again in later ones."""
    words, seeds, word, loader = [], [], TrainingContext.step_seed, remote_trainer.part_loader

    def step_seed(self, *place):
        drawn = word(self, *place)
        if self.random_rank:
            words[-1].add(drawn)
        return drawn

    def part_loader(*given):
        made = loader(*given)
        seeds[-1].add(made._stream.seed)
        return made

    monkeypatch.setattr(TrainingContext, "step_seed", step_seed)
    monkeypatch.setattr(remote_trainer, "part_loader", part_loader)
    asked = {"method": "random-tma", **WHOLE, "checkpoint": str(tmp_path), "eval_every": 100}
    for epochs, more in ((2, {}), (4, {"resume": "auto"})):
        words.append(set())
        seeds.append(set())
        served(community_graph(), 2, epochs=epochs, **asked, **more)
    assert [len(one) for one in seeds] == [2, 2]
    assert not words[0] & words[1]
    assert not seeds[0] & seeds[1]


def test_a_graph_that_is_not_the_same_is_refused():
    graph, address, said = community_graph(), f"127.0.0.1:{free_port()}", []

    def stranger():
        while not said:
            try:
                make_trainer(invited_config(address, PATIENCE), community_graph(seed=1))
            except UsageError as error:
                said.append(str(error))
            except PeerLost:
                time.sleep(0.05)

    other = threading.Thread(target=stranger, daemon=True)
    other.start()
    results = []
    asked = {**SMALL, **WHOLE, "method": "random-tma", "tolerate_failures": True, "trainers": 1, "listen": address, "timeout": PATIENCE}

    def friend():
        other.join()
        joining(address, graph, results).join()

    late = threading.Thread(target=friend, daemon=True)
    late.start()
    report = make_trainer(TrainConfig.of(**asked), graph).run()
    join(late)
    assert "the graph of this run is" in said[0]
    assert report["joined"] == 1


def test_no_trainer_joins():
    asked = {**SMALL, "method": "random-tma", "tolerate_failures": True, "listen": f"127.0.0.1:{free_port()}", "timeout": 0.3}
    graph = community_graph()
    server = make_trainer(TrainConfig.of(**asked), graph)
    with pytest.raises(PeerLost, match="no trainer is left in round 0"):
        server.run()
    largest = max(4 * (len(vector_of(server.model)) + 4), 4 * graph.n)  # an answer, or the vertices of a part
    assert server.method.participant.registry.server.max_queued_bytes == 4 * largest + 2**20


def test_nothing_but_its_server_ends_a_trainer_and_it_writes_no_files(monkeypatch):
    asked = {"epochs": 3, "patience": 2, "checkpoint": "c", "checkpoint_every": 7, "metrics": "m", "quiet": False, "eval_every": 1}
    asked |= {"method": "llcg", "tolerate_failures": True, "hidden": 24}
    invitation = Frame(Kind.INVITE, TrainConfig.of(**asked).model_dump_json(exclude={"token_file"}).encode())
    connection = SimpleNamespace(send=lambda *given: None, receive=lambda timeout: invitation, close=lambda: None)
    monkeypatch.setattr(remote_trainer, "join", lambda *given: connection)
    config = invited_config("127.0.0.1:9", 5.0)
    assert config.epochs == MAX_EPOCHS - 1 < config.eval_every
    assert (config.patience, config.checkpoint, config.checkpoint_every, config.metrics, config.quiet) == (0, None, 0, None, True)
    assert (config.method, config.hidden, config.join) == ("llcg", 24, "127.0.0.1:9")


def test_own_trainers_learn_the_address_from_their_command_and_the_token_from_the_environment(tmp_path, monkeypatch):
    started = []

    class Child:
        def __init__(self, command, env, stdin):
            started.append((command, env))

        def wait(self, timeout=None):
            return 0

    monkeypatch.setattr(subprocess, "Popen", Child)
    monkeypatch.setenv(TOKEN, "")  # the server makes one
    store.save(community_graph(), tmp_path / "g")
    asked = {**SMALL, "method": "random-tma", "tolerate_failures": True, "trainers": 2, "timeout": 0.1}
    server = make_trainer(TrainConfig.of(**asked), tmp_path / "g")
    with pytest.raises(PeerLost, match="no trainer is left in round 0"):
        server.run()
    words = ["-m", "bulksample", "train", str(tmp_path / "g"), "--join", server.method.participant.address, "--quiet"]
    assert [command for command, _ in started] == [[sys.executable, *words]] * 2
    assert [env["LOCAL_RANK"] for _, env in started] == ["1", "2"]
    (token,) = {env[TOKEN] for _, env in started}
    assert len(token) >= 32


@pytest.mark.parametrize(("starts_trainers", "file", "token", "means"), [
    (True, None, "", None),  # a token that was made for its own trainers
    (True, None, RUN_TOKEN, "the BULKSAMPLE_TOKEN of this process"), (True, "token", "", "--token-file {}"),
    (False, None, RUN_TOKEN, "the BULKSAMPLE_TOKEN of this process"), (False, "token", "", "--token-file {}"),
])  # fmt: skip
def test_a_server_says_how_others_join_if_they_can(tmp_path, monkeypatch, capfd, starts_trainers, file, token, means):
    store.save(community_graph(), tmp_path / "g")
    monkeypatch.setattr(TrainerServer, "_start_trainers", lambda self: None)
    monkeypatch.setenv(TOKEN, token)
    file, port = file and str(tmp_path / file), 0 if starts_trainers else free_port()
    asked = {"tolerate_failures": True, "listen": f"127.0.0.1:{port}", "token_file": file, "timeout": 0.1, "quiet": False}
    server = make_trainer(TrainConfig.of(**SMALL | {"method": "random-tma"} | asked), tmp_path / "g")
    address = server.method.participant.address
    with pytest.raises(PeerLost, match="no trainer is left in round 0"):
        server.run()
    said = [line for line in capfd.readouterr().err.splitlines() if "listening" in line]
    joins = f"bulksample: listening; `bulksample train FOLDER --join {address}` joins, with {(means or '').format(file)}"
    assert said == [joins] * bool(means)


@pytest.mark.parametrize(("options", "message"), [
    ({"listen": "127.0.0.1:0"}, "got a graph in memory"),
    ({"listen": "nowhere"}, "must be HOST:PORT"),
    ({"interval_growth": 1.5}, "use 1"), ({"interval": "2s", "average_by": "steps"}, "use responders or vertices, or a number of steps"),
    ({"tolerate_failures": False, "token_file": "token"}, "token_file is for trainers that may fail"),
    ({"method": "sync"}, "tolerate_failures is an option of the method"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        make_trainer(TrainConfig.of(**{"method": "random-tma", "tolerate_failures": True, **options}), community_graph())


# ---- real processes

# A step of a slow trainer takes at least six times as long as it would otherwise, however slow the machine is.
SLOW = """
import sys, time
from bulksample.methods.averaging.remote_trainer import RemoteTrainer
whole, began = RemoteTrainer.end_step, time.monotonic()
def end_step(self, *arguments):
    global began
    if {seconds}:
        time.sleep(max({seconds}, 5 * (time.monotonic() - began)))
    ended = whole(self, *arguments)
    began = time.monotonic()
    return ended
RemoteTrainer.end_step = end_step
sys.argv = {argv!r}
from bulksample.cli import main
main()
"""

# Once both trainers have joined, a server without any of them gives up after a second, and not after the timeout.
SERVER = """
import sys, time
from bulksample.methods.averaging.trainer_registry import TrainerRegistry
whole = TrainerRegistry.wait_for
def wait_for(self, count, until):
    whole(self, count, until if self.joined < 2 else time.monotonic() + 1)
TrainerRegistry.wait_for = wait_for
sys.argv = ["bulksample", *sys.argv[1:]]
from bulksample.cli import main
main()
"""


class Processes:
    """A server and trainers, none of which is left behind."""

    def __init__(self, folder, trainers, *more):
        self.folder, self.address = folder, f"127.0.0.1:{free_port()}"
        store.save(community_graph(n=600), folder / "g")
        words = ["--method", "random-tma", "--tolerate-failures", "--trainers", trainers, "--listen", self.address, "--fanouts", "5,5"]
        words += ["--hidden", 16, "--batch-size", 16, "--threads", 1, "--metrics", folder / "lines", "--json", folder / "report", *more]
        self.all = []
        self.server = self.start(["-c", SERVER, "train", str(folder / "g"), *map(str, words)], log="server")

    def start(self, words, log="trainer"):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with open(self.folder / log, "ab") as stream:
            made = subprocess.Popen([sys.executable, *words], env=environment, stdout=stream, stderr=stream)
        self.all.append(made)
        return made

    def trainer(self, slow=0.0):
        """A trainer, once the server listens."""
        self.until(lambda: b"listening" in (self.folder / "server").read_bytes())
        argv = ["bulksample", "train", str(self.folder / "g"), "--join", self.address, "--quiet"]
        return self.start(["-c", SLOW.format(seconds=slow, argv=argv)])

    def until(self, happened):
        """Wait for something that happens while the server runs."""
        assert until(lambda: happened() or self.server.poll() is not None, self.said)
        assert self.server.poll() is None, self.said()

    def lines(self):
        """Return the records of rounds; one that is being written has no end yet."""
        file = self.folder / "lines"
        return file.read_text().split("\n")[:-1] if file.exists() else []

    def rounds(self):
        return len(self.lines())

    def weight_bytes(self, number):
        """Return the bytes of the weights that travelled in a round."""
        return json.loads(self.lines()[number])["bytes_sent"]["model"]

    def said(self):
        return "\n".join(Path(self.folder / name).read_text() for name in ("server", "trainer") if (self.folder / name).exists())

    def end(self):
        for made in self.all:
            made.kill()
            made.wait()


@pytest.fixture
def processes(request, tmp_path):
    made = Processes(tmp_path, *request.param)
    yield made
    made.end()


@pytest.mark.long
@pytest.mark.parametrize(
    "processes", [(3, "--epochs", 1000, "--interval", "0.5s", "--grace", PATIENCE, "--timeout", PATIENCE)], indirect=True
)
def test_a_killed_trainer_is_missed_a_restarted_one_joins_and_a_slow_one_delays_no_other(processes):
    fast, victim, slow = processes.trainer(), processes.trainer(), processes.trainer(slow=0.6)
    processes.until(lambda: processes.rounds() >= 4)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    killed = processes.rounds()
    processes.until(lambda: processes.rounds() >= killed + 4)
    processes.trainer()
    processes.until(lambda: processes.said().count(" joined from ") == 4)
    processes.until(lambda: processes.weight_bytes(-1) == processes.weight_bytes(2))  # when as many answer as before
    processes.server.send_signal(signal.SIGTERM)
    assert processes.server.wait(PATIENCE) == 75, processes.said()
    report = json.loads((processes.folder / "report").read_text())
    assert "was lost in round" in processes.said()
    assert (report["joined"], report["lost"]) == (4, 1)
    lists = [set(one["responders"]) for one in report["rounds"]]
    missing = [i for i, one in enumerate(lists) if len(one) == 2]
    assert len(missing) >= 3
    assert lists[missing[0] - 1] == lists[-1] == {0, 1, 2}  # before, and when it was back
    steps = {part: sum(one["steps"].get(part, 0) for one in report["rounds"] if len(one["steps"]) == 3) for part in "012"}
    assert sorted(steps.values())[1] >= 2 * min(steps.values())  # the others made their steps
    assert fast.wait(PATIENCE) == slow.wait(PATIENCE) == 0


@pytest.mark.long
@pytest.mark.parametrize("processes", [(2, "--epochs", 1000, "--interval", "0.3s", "--grace", 1, "--timeout", PATIENCE)], indirect=True)
def test_a_run_without_trainers_ends_and_says_so(processes):
    both = [processes.trainer(), processes.trainer()]
    processes.until(lambda: processes.rounds() >= 2)
    for trainer in both:
        os.kill(trainer.pid, signal.SIGKILL)
    assert processes.server.wait(PATIENCE) == 75, processes.said()
    assert "no trainer is left in round" in processes.said()


@pytest.mark.long
@pytest.mark.parametrize("processes", [(2, "--epochs", 1000, "--interval", "0.3s", "--grace", 1, "--timeout", PATIENCE)], indirect=True)
def test_trainers_end_with_the_server_and_a_stopped_one_is_not_waited_for(processes):
    one, stopped = processes.trainer(), processes.trainer()
    processes.until(lambda: processes.rounds() >= 2)
    os.kill(stopped.pid, signal.SIGSTOP)
    before = processes.rounds()
    processes.until(lambda: processes.rounds() >= before + 5)
    os.kill(stopped.pid, signal.SIGCONT)
    processes.server.send_signal(signal.SIGKILL)
    assert one.wait(PATIENCE) == stopped.wait(PATIENCE) == 75, processes.said()


@pytest.mark.long
def test_the_command_line_starts_its_own_trainers(tmp_path):
    store.save(community_graph(n=600), tmp_path / "g")
    flags = {"method": "super-tma", "fanouts": "5,5", "hidden": 16, "batch-size": 16, "epochs": 4, "interval": "epoch", "trainers": 2}
    words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    command = ["-m", "bulksample", "train", str(tmp_path / "g"), *words, "--tolerate-failures", "--json", str(tmp_path / "r")]
    ended = run_alone(command)
    assert ended.returncode == 0, ended.stderr
    report = json.loads((tmp_path / "r").read_text())
    assert (report["joined"], report["averages"], report["trainers"]) == (2, 4, 2)

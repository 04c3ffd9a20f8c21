"""Forked ranks end, print and take signals as ranks that Python starts, and nothing of them is left."""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import launch
import pytest
from fork_server import ADDRESS, FORKING, receive, send
from launch import ROOT, SERVER, Ranks, run_fresh, run_ranks
from waiting import PATIENCE, until

MARK = "forked-by-a-test"


def start(words, **environment):
    """Start Python's words as one forked process, without a launcher."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    given = {**os.environ, "PYTHONPATH": paths, ADDRESS: SERVER.address, "BULKSAMPLE_LAUNCH": MARK, **environment}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.PIPE}
    return subprocess.Popen([*FORKING, *words], env=given, text=True, **streams)


def ends(words, **environment):
    process = start(words, **environment)
    out, err = process.communicate("a line\n", timeout=PATIENCE)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("program", "code", "out", "err"),
    [
        ("print('said')", 0, "said\n", ""),
        ("import sys; print(sys.argv[1:], __name__); sys.exit(7)", 7, "['x', 'y'] __main__\n", ""),
        ("raise SystemExit('why')", 1, "", "why\n"),
        ("import sys; sys.exit(None)", 0, "", ""),
        ("print(input())", 0, "a line\n", ""),
        ("import os; print(os.environ['GIVEN'], 'torch' in __import__('sys').modules)", 0, "this True\n", ""),
        ("import atexit; atexit.register(print, 'at the end')", 0, "at the end\n", ""),
        ("import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()", 0, "late\n", ""),
    ],
)
def test_a_program_ends_as_under_python(program, code, out, err):
    assert ends(["-c", program, "x", "y"], GIVEN="this") == (code, out, err)


def test_an_error_has_a_traceback_and_the_hook_of_the_program():
    code, _, err = ends(["-c", "raise KeyError('boom')"])
    assert code == 1
    assert "Traceback" in err
    assert err.endswith("KeyError: 'boom'\n")
    hook = "import sys\nsys.excepthook = lambda kind, error, trace: print('hooked', error, file=sys.stderr)\nraise KeyError('boom')"
    assert ends(["-c", hook]) == (1, "", "hooked 'boom'\n")


def test_modules_and_files_run_as_programs(tmp_path):
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    (tmp_path / "program.py").write_text("import sys, beside\nif __name__ == '__main__':\n    print(beside.WORD, sys.argv[1:])\n")
    assert ends([str(tmp_path / "program.py"), "x"]) == (0, "found ['x']\n", "")
    code, out, _ = ends(["-m", "bulksample", "--version"])
    assert code == 0
    assert out.startswith("bulksample ")


def test_what_a_forked_process_starts_is_forked_but_for_other_options_and_without_the_server():
    asked = "print('torch' in __import__('sys').modules)"
    start = "import os, subprocess, sys\nfor words in (['-c'], ['-W', 'ignore', '-c']):\n"
    start += f"    for more in ({{}}, {{{ADDRESS!r}: None}}):\n"
    start += "        known = {key: value for key, value in os.environ.items() if key not in more}\n"
    start += f"        print(subprocess.run([sys.executable, *words, {asked!r}], env=known, capture_output=True, text=True).stdout.strip())"
    ended = launch.run_alone(["-c", start])
    assert ended.stdout.split() == ["True", "False", "False", "False"], ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_the_rank_reaches_the_program(number):
    program = f"import signal, sys\nsignal.signal({int(number)}, lambda *_: sys.exit(9))\nprint('up', flush=True)\nsignal.pause()"
    process = start(["-c", program])
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    assert process.wait(PATIENCE) == 9
    process.communicate()


def test_a_signal_before_the_process_is_known_is_passed_on_to_it(tmp_path):
    """The test is the server: it answers after the signal."""
    child = subprocess.Popen(["sleep", "100"])
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        process = start(["-c", ""], **{ADDRESS: str(tmp_path / "s")})
        of, _ = server.accept()
        _, files = receive(of)
        for file in files:
            os.close(file)
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)
        with of, suppress(BrokenPipeError):
            send(of, {"child": child.pid})
            send(of, {"status": 9 << 8})
            process.communicate()
    child.kill()
    assert (child.wait(), process.wait()) == (-signal.SIGUSR1, 9)


def test_a_program_that_a_signal_ends_ends_the_rank_by_it():
    assert ends(["-c", "import os; os.kill(os.getpid(), 9)"])[0] == -signal.SIGKILL
    assert ends(["-c", "import os; os.kill(os.getpid(), 15)"])[0] == -signal.SIGTERM


def test_how_a_program_ended_can_be_read_until_the_tests_ask():
    """The sentinel of a rank reads it, and may come late on a busy machine."""
    process = start(["-c", "import os; print(os.getpid(), flush=True); os.kill(os.getpid(), 9)"])
    child = int(process.stdout.readline())
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    state, *_, status = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    assert (state, int(status)) == ("Z", signal.SIGKILL)
    assert child not in SERVER.ask(alive=MARK)["alive"]
    assert not os.path.exists(f"/proc/{child}")


def test_a_rank_that_is_killed_takes_its_program_with_it():
    process = start(["-c", "import os, time; print(os.getpid(), flush=True); time.sleep(10_000)"])
    child = int(process.stdout.readline())
    assert SERVER.ask(alive=MARK)["alive"] == [child]
    process.kill()
    until(lambda: not SERVER.ask(alive=MARK)["alive"])
    assert not os.path.exists(f"/proc/{child}")
    process.communicate()


def open_files():
    """The number of files that the server has open."""
    return len(os.listdir(f"/proc/{SERVER._process.pid}/fd"))


@pytest.mark.parametrize("half", [False, True], ids=["whole", "half"])
def test_the_server_outlives_a_rank_that_is_killed_before_it_is_answered(half):
    """The server is held while it is asked, so that nobody is there when it answers; it ends the process that it has forked."""
    address = SERVER.address
    until(lambda: not SERVER.ask(alive=MARK)["alive"])
    before = open_files()
    SERVER._process.send_signal(signal.SIGSTOP)
    try:
        with socket.socket(socket.AF_UNIX) as to, open(os.devnull, "w+") as none:
            to.connect(address)
            words = ["-c", "import time; time.sleep(10_000)"]
            asked = {"words": words, "environment": dict(os.environ), "folder": os.getcwd(), "mark": MARK}
            if half:
                to.sendall((1000).to_bytes(8, "big"))
                socket.send_fds(to, [b"{"], [none.fileno()] * 3)
            else:
                send(to, asked, [none.fileno()] * 3)
    finally:
        SERVER._process.send_signal(signal.SIGCONT)
    until(lambda: not SERVER.ask(alive=MARK)["alive"])
    assert ends(["-c", "print('said')"]) == (0, "said\n", "")
    until(lambda: open_files() <= before)  # fewer, if a launch of an earlier test has ended meanwhile


def test_a_launch_that_leaves_a_process_fails(monkeypatch):
    """A process that a forked rank starts has the mark of the launch, so it is found and ended."""
    monkeypatch.setattr(launch, "PATIENCE", 10.0)  # a tenth of it is given to what is about to end
    leave = "import subprocess, sys; subprocess.Popen(['sleep', '10000'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"
    ranks = Ranks(1, leave, fresh=False)
    with pytest.raises(pytest.fail.Exception, match="processes were left behind"):
        ranks.wait()
    until(lambda: not launch.alive(ranks.mark))


@pytest.mark.long
def test_ranks_meet_over_mpi_and_print_as_ranks_of_python_do():
    program = "import bulksample as bs, numpy as np\nw = bs.init()\nprint(w.rank, w.allreduce(np.ones(2), 'gradients').tolist())"
    for run in (run_ranks, run_fresh):
        ended = run(3, program)
        assert (ended.code, ended.err) == (0, ""), ended
        assert sorted(ended.out.splitlines()) == [f"{rank} [3.0, 3.0]" for rank in range(3)]
        assert ended.printed == {f"rank {rank}, stdout": f"{rank} [3.0, 3.0]\n" for rank in range(3)}

"""The jobs of slurm/: they can be read, ask for what there is, and are tried on a cluster of simulated nodes where SLURM is installed."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import typer.main
from communities import community_graph
from launch import ROOT
from waiting import PATIENCE

from bulksample.cli.app import app
from bulksample.data import store

SLURM = ROOT / "slurm"
JOBS = sorted(SLURM.glob("*.sbatch"))
SCRIPTS = [*JOBS, *sorted(SLURM.glob("*.sh"))]
EXPERIMENTS = [job for job in JOBS if job.name != "gather.sbatch"]
PATHS = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # jobs call python
NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "srun")
OF_BASH = {
    "--kill-on-bad-exit",
    "--mpi",
    "--ntasks",
    "--ntasks-per-node",
    "--cpus-per-task",
    "--export",
    "--cpu-bind",
    "--distribution",
}  # of srun
OF_TORCHRUN = {"--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-id", "--rdzv-endpoint", "--no-python"}


def code_of(path):
    """A script without comments and without what it asks of sbatch."""
    return "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_bash_can_read_it(script):
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("script", [path for path in SCRIPTS if path.suffix == ".sh" and path.name != "env.sh"], ids=lambda path: path.name)
def test_it_can_be_started_and_stops_at_an_error(script):
    assert os.access(script, os.X_OK)
    assert "\nset -euo pipefail\n" in script.read_text()


@pytest.mark.parametrize("job", EXPERIMENTS, ids=lambda path: path.stem)
def test_a_job_asks_for_128_gpus_and_comes_back(job):
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(\S*)$", job.read_text(), re.MULTILINE))
    assert (asked["nodes"], asked["ntasks-per-node"], asked["gres"]) == ("32", "4", "gpu:4")
    assert re.fullmatch(r"(B:TERM|USR1)@\d+", asked["signal"])
    assert "requeue" in asked
    assert asked["open-mode"] == "append"  # or a restart would lose what was said before
    assert asked["job-name"].startswith("bulksample-")


def test_every_option_exists():
    commands = typer.main.get_command(app).commands
    text = "\n".join(code_of(script) for script in [*JOBS, SLURM / "env.sh"])
    asked = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - OF_BASH - OF_TORCHRUN
    known = {option for name in ("sample", "train", "compare", "report", "plan") for one in commands[name].params for option in one.opts}
    assert len(asked) > 20
    assert asked <= known


@pytest.mark.parametrize(
    ("device", "words"), [("cuda", "--backend cuda --device cuda --check full"), ("cpu", "--backend auto --device cpu --check full")]
)
@pytest.mark.parametrize("launcher", ["srun", "mpirun", "torchrun"])
def test_the_environment_says_how_ranks_start(tmp_path, device, words, launcher):
    """Run a job script with stand-ins for scontrol, srun, mpirun and python that print their arguments."""
    for name in ("srun", "mpirun", "python"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'node7\\nnode8\\n'\n")
    (tmp_path / "scontrol").chmod(0o755)
    job = {"JOB_ID": "123456", "JOB_NODELIST": "node[7-8]", "JOB_NUM_NODES": "2", "NTASKS": "8", "CPUS_PER_TASK": "16", "SUBMIT_DIR": SLURM}
    own = {"BULKSAMPLE_GRAPH": "g", "BULKSAMPLE_RESULTS": str(tmp_path / "r"), "BULKSAMPLE_DEVICE": device, "BULKSAMPLE_LAUNCHER": launcher}
    done = subprocess.run(
        ["bash", "-euc", f'. {SLURM}/env.sh; echo "${{training[@]}}"; echo $MASTER_ADDR:$MASTER_PORT; on_ranks sample g'],
        env={"PATH": f"{tmp_path}:{os.defpath}", **{f"SLURM_{key}": str(value) for key, value in job.items()}, **own},
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == words
    assert said[1] == f"node7:{20000 + 123456 % 20000}"
    assert said[2].startswith("mpirun -n 8 -ppn 4" if launcher == "mpirun" else "srun ")
    assert said[2].endswith("python -m bulksample sample g")
    assert "{ranks}" not in said[2]
    if launcher == "srun":
        assert {"--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=16", "--mpi=pmi2"} <= set(said[2].split())
    if launcher == "torchrun":
        assert {"--mpi=none", "--cpu-bind=cores", "--ntasks-per-node=1", f"{SLURM}/rank.sh"} <= set(said[2].split())
        assert {"--nnodes=2", "--nproc-per-node=4", f"--rdzv-endpoint={said[1]}", "--cpus-per-task=64"} <= set(said[2].split())


@pytest.mark.parametrize(
    ("code", "state", "restarts", "comes_back"),
    [
        (75, "RUNNING", 0, True),
        (138, "RUNNING", 3, True),
        (142, "RUNNING", 0, True),
        (75, "CANCELLED", 0, False),
        (75, "RUNNING", 20, False),
        (1, "RUNNING", 0, False),
    ],
)
def test_a_job_goes_back_into_the_queue_unless_it_failed_or_was_cancelled(tmp_path, code, state, restarts, comes_back):
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$1 JobState={state}"\n')
    (tmp_path / "scontrol").chmod(0o755)
    job = {
        "JOB_ID": "5",
        "JOB_NODELIST": "a",
        "JOB_NUM_NODES": "1",
        "NTASKS": "1",
        "RESTART_COUNT": str(restarts),
        "SUBMIT_DIR": str(SLURM),
    }
    own = {"PATH": f"{tmp_path}:{os.defpath}", "BULKSAMPLE_GRAPH": "g", "BULKSAMPLE_RESULTS": str(tmp_path / "r")}
    done = subprocess.run(
        ["bash", "-euc", f". {SLURM}/env.sh; leave {code}"], env=own | {f"SLURM_{key}": value for key, value in job.items()},
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert ("requeue JobState" in done.stdout) == comes_back


@pytest.fixture
def in_a_job(tmp_path):
    """Run lines of bash after env.sh in a job of two nodes with four ranks each; commands of SLURM are stand-ins."""

    def run(lines, srun='echo "$@"', path="", **own):
        for name, text in (("srun", srun), ("scontrol", "printf 'node7\\nnode8\\n'")):
            (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
            (tmp_path / name).chmod(0o755)
        job = {"JOB_ID": "5", "JOB_NODELIST": "node[7-8]", "JOB_NUM_NODES": "2", "NTASKS": "8", "SUBMIT_DIR": str(SLURM)}
        own = {"BULKSAMPLE_GRAPH": "g", "BULKSAMPLE_RESULTS": str(tmp_path / "r"), "BULKSAMPLE_DEVICE": "cpu", **own}
        return subprocess.run(
            ["bash", "-euc", f". {SLURM}/env.sh\n{lines}"],
            env={"PATH": f"{tmp_path}:{path}{os.defpath}", **{f"SLURM_{key}": value for key, value in job.items()}, **own},
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(("starts", "chosen"), [("torch.distributed.run", "torchrun"), ("--mpi=pmi2", "srun")])
def test_the_preflight_takes_the_first_launcher_by_which_ranks_meet(in_a_job, starts, chosen):
    """Of two ranks on each node; it says why others were not taken."""
    done = in_a_job("on_ranks sample g", f'case " $* " in *" {starts} "*) echo "$@" ;; *) echo "no such plug-in" >&2; exit 1 ;; esac')
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert f"launcher {chosen}: 2 ranks on each of 2 nodes met in" in done.stdout
    assert ("launcher torchrun: ranks did not meet: no such plug-in" in said) == (chosen == "srun")
    assert said[-1].endswith("python -m bulksample sample g")
    assert "--nproc-per-node=4" in said[-1] or "--ntasks=8" in said[-1]


def test_a_job_whose_ranks_never_meet_goes_back_into_the_queue(in_a_job):
    done = in_a_job("leave() { echo leaves with $1; exit $1; }\nlaunch", "exit 1")
    assert "leaves with 142" in done.stdout


@pytest.mark.parametrize(
    ("codes", "counts"), [("75\n137\n", 75), ("137\n75\n143\n", 75), ("75\n1\n143\n", 1), ("142\n143\n", 142), ("143\n2\n", 2), ("", 1)]
)
def test_the_code_of_torchrun_is_that_of_its_ranks(in_a_job, tmp_path, codes, counts):
    """A failure counts most, then a checkpoint or a lost rank; without codes torchrun's own, 1."""
    lines = f"on_ranks() {{ printf '{codes}' >$BULKSAMPLE_CODES; return 1; }}\nBULKSAMPLE_CODES={tmp_path}/codes\nstarted x || echo left $?"
    assert f"left {counts}" in in_a_job(lines.replace("\n'", "\\n'") if codes else lines, BULKSAMPLE_LAUNCHER="torchrun").stdout


def test_ranks_that_start_late_are_started_three_times(in_a_job, tmp_path):
    lines = f"on_ranks() {{ echo began; return 142; }}\nBULKSAMPLE_CODES={tmp_path}/codes\nstarted x || echo left $?"
    assert in_a_job(lines).stdout.split("\n")[:-1] == ["began", "began", "began", "left 142"]


def test_a_run_of_virtual_ranks_has_one_name_on_any_number_of_ranks(in_a_job):
    lines = 'of_run train/replicated; echo "${virtual[@]}"'
    assert in_a_job(lines).stdout.split() == ["train/replicated-8"]
    assert in_a_job(lines, BULKSAMPLE_VIRTUAL_RANKS="16").stdout.split() == ["train/replicated-16", "--virtual-ranks", "16"]


def test_the_trained_weights_move_to_the_results(in_a_job, tmp_path):
    """Also those of a job that was killed after its report had moved; older weights of the same name give way."""
    trained = """
started() { mkdir -p $work/train/run.checkpoint/step-10; touch $work/train/run.{config.yaml,jsonl}; echo '{}' >$work/train/run.json; }
train train/run
"""
    results, under_way = tmp_path / "r" / "train", tmp_path / "r-under-way" / "train"
    assert in_a_job(trained).returncode == 0
    assert {path.name for path in results.iterdir()} == {"run.checkpoint", "run.config.yaml", "run.json", "run.jsonl"}
    assert [path.name for path in (results / "run.checkpoint").iterdir()] == ["step-10"]
    (under_way / "run.checkpoint" / "step-20").mkdir(parents=True)
    assert in_a_job("train train/run").returncode == 0
    assert [path.name for path in (results / "run.checkpoint").iterdir()] == ["step-20"]
    assert list(under_way.iterdir()) == []


def test_copies_come_from_the_plan(in_a_job, tmp_path):
    """The graph is tiny, so every rank has room for all, and one copy of block rows is measured."""
    store.save(community_graph(), tmp_path / "g")
    paths = {"path": f"{Path(sys.executable).parent}:", "PYTHONPATH": str(ROOT), "BULKSAMPLE_GRAPH": str(tmp_path / "g")}
    done = in_a_job('copies_of "1 2 4"', BULKSAMPLE_REPLICATION="plan", **paths)
    assert done.stdout.split() == ["1"], done.stderr
    assert in_a_job('copies_of "1 2 4"').stdout.split() == ["1", "2", "4"]


@pytest.mark.parametrize(("command", "code"), [("exit 75", 75), ("kill -9 $$", 137), ("exit 0", 0)])
def test_a_rank_leaves_its_exit_code(tmp_path, command, code):
    done = subprocess.run([SLURM / "rank.sh", "bash", "-c", command], env={**PATHS, "BULKSAMPLE_CODES": str(tmp_path / "codes")})
    assert done.returncode == code
    assert ((tmp_path / "codes").read_text() if code else "0") == (f"{code}\n" if code else "0")


def test_a_rank_below_torchrun_can_take_the_signal_that_torchrun_ignores():
    program = "import signal; print(signal.getsignal(signal.SIGUSR1).name)"
    found = [
        subprocess.run([*line, sys.executable, "-c", program], env=PATHS, capture_output=True, text=True, timeout=PATIENCE).stdout.split()
        for line in ([SLURM / "agent.sh"], [SLURM / "agent.sh", SLURM / "rank.sh"])
    ]
    assert found == [["SIG_IGN"], ["SIG_DFL"]]


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGTERM"])
def test_signals_reach_a_rank_or_pass_it_by(tmp_path, name):
    """SIGUSR1 is for the rank alone; SIGTERM is passed on, and the rank ends with its own code."""
    program = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\nprint('ready', flush=True)\nsignal.pause()"
    environment = {**PATHS, "BULKSAMPLE_CODES": str(tmp_path / "codes")}
    ranks = subprocess.Popen([SLURM / "rank.sh", sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    assert ranks.stdout.readline() == "ready\n"
    ranks.send_signal(getattr(signal, name))
    if name == "SIGUSR1":
        time.sleep(0.3)
        assert ranks.poll() is None
        ranks.terminate()
    assert ranks.wait(PATIENCE) == 75
    ranks.stdout.close()
    assert (tmp_path / "codes").read_text() == "75\n"


def test_submit_chains_the_sizes_and_gathers_at_the_end(tmp_path):
    (tmp_path / "sbatch").write_text(
        f'#!/bin/sh\nn=$(($(cat {tmp_path}/n 2>/dev/null || echo 0) + 1)); echo $n >{tmp_path}/n; echo "$@" >>{tmp_path}/asked; echo $n\n'
    )
    (tmp_path / "sbatch").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.defpath}", "BULKSAMPLE_GRAPH": "g", "BULKSAMPLE_RESULTS": str(tmp_path / "r")}
    line = ["bash", str(SLURM / "submit.sh"), "sampling", "compare", "--", "--account=me"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 13
    assert [re.search(r"--nodes=(\d+)", one).group(1) for one in asked[:6]] == ["1", "2", "4", "8", "16", "32"]
    assert [re.search(r"afterany:(\d+)", one).group(1) if i else None for i, one in enumerate(asked[:6])] == [None, *"12345"]
    assert "--dependency" not in asked[6]
    assert "--dependency=afterany:" + ":".join(map(str, range(1, 13))) in asked[12]
    assert all("--account=me" in one for one in asked)
    line[2] = "nothing"
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "use sampling" in done.stderr


def test_a_box_whose_sockets_would_have_too_long_a_name_is_refused(tmp_path):
    box = tmp_path / ("long" * 20)
    environment = {**os.environ, "ONEBOX": str(box)}
    done = subprocess.run([str(SLURM / "onebox.sh"), "up"], env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "use an ONEBOX of at most 68" in done.stderr
    assert not box.exists()


@pytest.fixture
def short_folder():
    """A folder whose name leaves room for those of sockets in it."""
    with tempfile.TemporaryDirectory(prefix="bs", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.mark.long
@pytest.mark.timeout(10.2 * PATIENCE)
@pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason="SLURM is not installed: use slurm/onebox.sh install")
@pytest.mark.skipif(getattr(os, "getuid", lambda: 1)() != 0, reason="the daemons of SLURM need root here")
def test_all_jobs_are_accepted_and_run_to_their_end(short_folder):
    """128 GPUs on paper; and every job for real, small and on the processor, under slurmd."""
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": paths, "PYTHONPATH": str(ROOT), "BULKSAMPLE_CHECK": short_folder, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(SLURM / "check.sh")], env=environment, capture_output=True, text=True, timeout=10 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("accepted: ") == len(JOBS)
    for line in ("ran: 9 jobs, all completed", "refused: srun --mpi=none", "resumed: "):
        assert line in done.stdout

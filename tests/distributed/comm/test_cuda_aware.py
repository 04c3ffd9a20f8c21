"""The MPI library is asked whether it reads device memory. Libraries that answer yes, no or nothing are compiled here."""

import json
import os
import shutil
import subprocess

import pytest
from launch import run_fresh
from waiting import PATIENCE

from bulksample.distributed.comm.mpi import SWITCHES, SYMBOL, ask
from bulksample.distributed.comm.threads import SerialComm

CC = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")


def built(folder, name, source, *more):
    if CC is None:
        pytest.skip("there is no C compiler")
    (folder / f"{name}.c").write_text(source)
    made = folder / f"lib{name}.so"
    subprocess.run([CC, "-shared", "-fPIC", "-o", made, folder / f"{name}.c", *more], check=True, timeout=PATIENCE)
    return made


@pytest.mark.parametrize(("body", "aware", "reason"), [
    ("return 1;", True, "says that it reads device memory"), ("return 0;", False, "says that it does not"),
    ("return -1;", False, "says that it does not"),
])  # fmt: skip
def test_the_answer_of_a_library_is_reported(tmp_path, body, aware, reason):
    found = ask(built(tmp_path, "says", f"int {SYMBOL}(void) {{ {body} }}"), {})
    assert found.aware is aware
    assert reason in found.reason


def test_a_library_without_the_function_is_not_cuda_aware_whatever_its_name(tmp_path):
    found = ask(built(tmp_path, "mpi_cuda_aware", "int MPI_Init(void) { return 0; }"), {})
    assert found == (False, f"the MPI library has no {SYMBOL} to ask")
    found = ask(tmp_path / "nowhere.so", {})
    assert not found.aware
    assert "cannot be asked" in found.reason


def test_a_module_linked_with_the_library_finds_the_function(tmp_path):
    """mpi4py's module is linked with the MPI library in this way."""
    built(tmp_path, "inner", f"int {SYMBOL}(void) {{ return 1; }}")
    module = built(tmp_path, "module", f"int {SYMBOL}(void); int used(void) {{ return {SYMBOL}(); }}", f"-L{tmp_path}", "-linner",
                   f"-Wl,-rpath,{tmp_path}")  # fmt: skip
    assert ask(module, {}).aware


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize(("value", "aware"), [("0", False), ("No", False), ("1", True), ("", True)])
def test_a_variable_turns_the_support_off_but_never_on(tmp_path, name, value, aware):
    says = {
        1: built(tmp_path, "yes", f"int {SYMBOL}(void) {{ return 1; }}"),
        0: built(tmp_path, "no", f"int {SYMBOL}(void) {{ return 0; }}"),
    }
    found = ask(says[1], {name: value})
    assert found.aware is aware
    assert aware or found.reason == f"{name}={value} keeps the MPI library from device memory"
    assert not ask(says[0], {name: value}).aware


def test_the_library_of_this_machine_gives_one_answer_on_all_ranks():
    """Asked without a communicator and through one; pip's MPICH is built without CUDA and says so."""
    code = """
import json
from bulksample.distributed.comm.world import cuda_aware, world
before = cuda_aware()
from waiting import PATIENCE
with world(PATIENCE) as comm:
    answers = comm.gather_control([before, comm.cuda_aware])
    if comm.rank == 0:  # two ranks that print may cut each other short
        print(json.dumps(answers))
"""
    ended = run_fresh(2, code)
    assert ended.code == 0, ended
    first, *others = [answer for of_rank in json.loads(ended.out) for answer in of_rank]
    assert others == [first] * 3, ended
    assert "MPI library" in first[1]
    assert SerialComm().cuda_aware == (False, "the ranks do not meet by MPI")

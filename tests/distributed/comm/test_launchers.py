"""Each launcher is recognized by its variables, and the closest to the process counts if several have set some."""

import os
import sys
from types import SimpleNamespace

import pytest

from bulksample import UsageError
from bulksample.distributed.comm.launchers import PREFIXES, Launch, check_launch, launched, unheard

TORCH = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "node001", "MASTER_PORT": "29500"}
TORCHRUN = {**TORCH, "TORCHELASTIC_RUN_ID": "7"}
JOB = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
STEP = {"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1"}
PMI = {"PMI_SIZE": "4", "PMI_RANK": "2", "PMI_FD": "5"}
OMPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2"}


@pytest.fixture
def environment(monkeypatch):
    for name in [*os.environ, *TORCH]:
        if name.startswith(PREFIXES) or name in TORCH:
            monkeypatch.delenv(name, raising=False)

    def put(values):
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return put


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, Launch()),
        ({"WORLD_SIZE": "4"}, Launch()),  # left over
        ({"WORLD_SIZE": "4", "RANK": "0"}, Launch()),
        (TORCH, Launch("environment", 8, "WORLD_SIZE", 3)),
        (TORCHRUN, Launch("torchrun", 8, "WORLD_SIZE", 3)),
        (JOB, Launch()),  # the script of the job, or a notebook in it
        (JOB | {"SLURM_PROCID": "1"}, Launch("srun", 2, "SLURM_PROCID", 1)),  # no script has this number
        (STEP, Launch("srun", 2, "SLURM_STEP_NUM_TASKS", 1)),
        (PMI, Launch("mpirun", 4, "PMI_SIZE", 2)),
        (OMPI, Launch("mpirun", 4, "OMPI_COMM_WORLD_SIZE", 2)),
        (STEP | PMI, Launch("srun", 4, "PMI_SIZE", 2)),
        (STEP | PMI | {"HYDI_CONTROL_FD": "6"}, Launch("mpirun", 4, "PMI_SIZE", 2)),  # MPICH's mpirun in a job
        (JOB | OMPI, Launch("mpirun", 4, "OMPI_COMM_WORLD_SIZE", 2)),
        (STEP | PMI | TORCHRUN, Launch("torchrun", 8, "WORLD_SIZE", 3)),  # one torchrun a node, started by srun
        (PMI | TORCH, Launch("mpirun", 4, "PMI_SIZE", 2)),
        (STEP | TORCH, Launch("environment", 8, "WORLD_SIZE", 3)),
        ({"PMI_SIZE": "many"}, Launch()),
        ({"MV2_COMM_WORLD_SIZE": "4", "MV2_COMM_WORLD_RANK": "3"}, Launch("mpirun", 4, "MV2_COMM_WORLD_SIZE", 3)),
        ({"MVP_COMM_WORLD_SIZE": "4", "MVP_COMM_WORLD_RANK": "3"}, Launch("mpirun", 4, "MVP_COMM_WORLD_SIZE", 3)),
        ({"JSM_NAMESPACE_SIZE": "4", "JSM_NAMESPACE_RANK": "3"}, Launch("jsrun", 4, "JSM_NAMESPACE_SIZE", 3)),
        ({"FLUX_JOB_SIZE": "4", "FLUX_TASK_RANK": "3"}, Launch("flux", 4, "FLUX_JOB_SIZE", 3)),
        ({"FLUX_JOB_SIZE": "4"}, Launch()),
        ({"PMIX_RANK": "0"}, Launch()),  # perhaps a shell below a launcher
        ({"PMIX_RANK": "3"}, Launch("prterun", 4, "PMIX_RANK", 3)),
        ({"PALS_RANKID": "3"}, Launch("mpiexec", 4, "PALS_RANKID", 3)),
        (STEP | {"PMIX_RANK": "1"}, Launch("srun", 2, "SLURM_STEP_NUM_TASKS", 1)),
    ],
)
def test_the_launcher_closest_to_the_process_decides(environment, values, found):
    environment(values)
    assert launched() == found


def test_ranks_connect_through_torch_only_if_torch_started_them():
    assert Launch("torchrun", 2, "WORLD_SIZE", 0).by_torch
    assert Launch("environment", 2, "WORLD_SIZE", 0).by_torch
    assert not Launch("srun", 2, "SLURM_STEP_NUM_TASKS", 0).by_torch


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (TORCH | {"RANK": "8"}, "RANK: got '8'; use a whole number from 0 to 7, or unset RANK, WORLD_SIZE"),
        (TORCH | {"RANK": "abc"}, "RANK: got 'abc'"),
        (TORCH | {"RANK": "-1"}, "RANK: got '-1'"),
        (TORCH | {"WORLD_SIZE": "0"}, "WORLD_SIZE: got '0'; use a whole number from 1"),
        (TORCH | {"WORLD_SIZE": "-2"}, "WORLD_SIZE: got '-2'"),
        (TORCHRUN | {"MASTER_PORT": "abc"}, "MASTER_PORT: got 'abc'; use a whole number from 1 to 65535"),
        (TORCH | {"MASTER_PORT": "99999"}, "MASTER_PORT: got '99999'"),
        (TORCH | {"MASTER_ADDR": " "}, "MASTER_ADDR: got nothing; use the name or the address of the machine of rank 0"),
        (PMI | {"PMI_RANK": "7"}, "PMI_SIZE says that there are 4 ranks, but this is rank 7; start with mpirun"),
    ],
)
def test_variables_that_contradict_each_other_are_refused_before_anyone_waits(environment, values, message):
    environment(values)
    with pytest.raises(UsageError, match=message):
        check_launch(launched())


@pytest.mark.parametrize("values", [{}, TORCH, TORCHRUN, JOB, STEP, PMI, OMPI, {"WORLD_SIZE": "4"}, {"PMI_SIZE": "0", "PMI_RANK": "0"}])
def test_variables_of_launchers_and_leftovers_pass(environment, values):
    environment(values)
    check_launch(launched())


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ("MASTER_ADDR", "set MASTER_ADDR to run together, or unset RANK, WORLD_SIZE, MASTER_PORT to run alone"),
        ("MASTER_PORT", "got RANK=3, WORLD_SIZE=8, MASTER_ADDR=node001, but no MASTER_PORT; set MASTER_PORT to run together"),
        ("RANK", "but no RANK; set RANK to run together"),
        ("WORLD_SIZE", "but no WORLD_SIZE; set WORLD_SIZE to run together"),
    ],
)
def test_a_rank_of_torch_that_lacks_a_variable_is_told_which(environment, left_out, said):
    environment({name: value for name, value in TORCH.items() if name != left_out})
    assert launched() == Launch()
    assert said in unheard()


@pytest.mark.parametrize("values", [
    {}, {"WORLD_SIZE": "4"}, {"RANK": "0", "WORLD_SIZE": "1"}, {"MASTER_ADDR": "node001", "MASTER_PORT": "29500"}, JOB,
])  # fmt: skip
def test_nothing_is_said_to_a_process_that_is_one(environment, values):
    environment(values)
    assert unheard() == ""


def test_ranks_of_torch_without_variables_are_noticed(environment, monkeypatch):
    begun = {"is_available": lambda: True, "is_initialized": lambda: True, "get_rank": lambda: 1, "get_world_size": lambda: 2}
    environment({})
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(**begun))
    assert "torch.distributed has begun as rank 1 of 2" in unheard()

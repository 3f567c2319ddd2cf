"""What a process learns from its launcher."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from widenet.parallel.launcher import identity, launcher_variable, leave_launcher, restarted, started_by_mpi

MPI = {
    "Open MPI": {
        "OMPI_COMM_WORLD_RANK": "2",
        "OMPI_COMM_WORLD_SIZE": "3",
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
        "PMIX_RANK": "2",
        "PMIX_NAMESPACE": "prterun-node1-11689@1",
    },
    "MPICH": {
        "PMI_RANK": "2",
        "PMI_SIZE": "3",
        "MPI_LOCALRANKID": "0",
        "MPI_LOCALNRANKS": "1",
        "PMI_FD": "8",
    },
}
"""Variables as Open MPI 4.1 and 5.0 and MPICH 4.0 were seen to set them."""

SRUN = {
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "3",
    "SLURM_STEP_NODELIST": "a[1-2]",
}
DAEMON = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": "a2"}
"""Slurm's variables as a daemon of mpirun on a second node hands them on."""

LAUNCHERS = {
    "none": ({}, [None] * 5, False),
    "torchrun": (
        {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        ["2", "3", "0", "1", None],
        False,
    ),
    "Open MPI": (MPI["Open MPI"], ["2", "3", "0", "1", None], True),
    "MPICH": (MPI["MPICH"], ["2", "3", "0", "1", None], True),
    "Open MPI within a Slurm job": (MPI["Open MPI"] | DAEMON, ["2", "3", "0", "1", None], True),
    "torchrun within Open MPI": (
        MPI["Open MPI"]
        | {
            "RANK": "5",
            "WORLD_SIZE": "6",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
            "TORCHELASTIC_RUN_ID": "a",
        },
        ["5", "6", "1", "2", None],
        False,
    ),
    "srun": (SRUN, ["2", "3", "0", None, "a1"], False),
    "srun --mpi=pmi2": (SRUN | {"PMI_RANK": "2", "PMI_SIZE": "3"}, ["2", "3", "0", None, "a1"], False),
    "srun --mpi=pmix": (
        SRUN | {"PMIX_RANK": "2", "PMIX_NAMESPACE": "slurm.pmix.7.0"},
        ["2", "3", "0", None, "a1"],
        False,
    ),
    "prterun": (
        {"PMIX_RANK": "2", "PMIX_NAMESPACE": "prterun-node1-11717@1", "WORLD_SIZE": "3"} | DAEMON,
        ["2", "3", "2", None, None],
        False,
    ),
}


@pytest.fixture
def told(monkeypatch):
    """Sets the variables of a launcher in place of all that there may be."""

    def tell(environment):
        for name in os.environ:
            if name.startswith(
                ("OMPI_", "PMI", "MPI_", "SLURM_", "TORCHELASTIC_", "MASTER_", "LOCAL_")
            ) or name in ("RANK", "WORLD_SIZE"):
                monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return tell


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_process_learns_its_place_from_the_launcher_that_has_started_it(launcher, told):
    environment, expected, mpi = LAUNCHERS[launcher]
    told(environment)
    assert [
        launcher_variable(name)
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    ] == expected
    assert started_by_mpi() == mpi


@pytest.mark.parametrize("wrapper", [[], ["bash", "-c", '"$@"; true', "bash"]], ids=["alone", "in a script"])
@pytest.mark.parametrize("library", MPI)
def test_the_launcher_is_the_nearest_process_above_that_has_no_rank(library, wrapper, told):
    told(MPI[library])
    code = "from widenet.parallel.launcher import launcher_identity; print(launcher_identity())"
    ended = subprocess.run([*wrapper, sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split("-")[0] == str(os.getpid())


def test_the_launcher_may_have_a_name_that_is_no_text(told):
    told(MPI["Open MPI"])
    code = "from widenet.parallel.launcher import launcher_identity; print(launcher_identity())"
    comm = Path("/proc/self/comm")
    name = comm.read_bytes()
    try:
        comm.write_bytes(b"half a letter \xc3")
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    finally:
        comm.write_bytes(name)
    assert ended.stdout.split("-")[0] == str(os.getpid())


NODES = {
    "node5": "node5",
    "login.cluster.example.org": "login.cluster.example.org",
    "a[01-04,7]": "a01",
    "a[7,01-04]": "a7",
    "a[007]": "a007",
    "gpu-a[2-3],gpu-b7": "gpu-a2",
    "gpu-b7,gpu-a[2-3]": "gpu-b7",
    "rack[1-2,9]-node[03-04],x1": "rack1-node03",
    "cn[0-1].ib": "cn0.ib",
    "tux1,tux[3-4]": "tux1",
}


@pytest.mark.parametrize("nodes", NODES)
def test_under_slurm_the_group_meets_at_the_first_node_of_the_step(nodes, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1")
    monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
    assert launcher_variable("MASTER_ADDR") == NODES[nodes]
    monkeypatch.setenv("MASTER_ADDR", "told")
    assert launcher_variable("MASTER_ADDR") == "told"


def test_without_a_list_of_nodes_the_group_meets_where_slurm_was_called(monkeypatch):
    for name in ("MASTER_ADDR", "SLURM_STEP_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1")
    assert launcher_variable("MASTER_ADDR") == "10.0.0.1"


@pytest.mark.parametrize(
    ("count", "expected"), [(None, False), ("", False), ("0", False), ("1", True), ("12", True)]
)
def test_a_process_knows_whether_torchrun_has_started_it_again(count, expected, monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    if count is not None:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
    assert restarted() == expected


def test_a_process_has_a_name_that_no_other_has():
    own = identity(os.getpid())
    assert own == identity(os.getpid())
    assert "" != own != identity(os.getppid())
    with subprocess.Popen(["true"]) as gone:
        pass
    assert identity(gone.pid) == ""


@pytest.mark.parametrize("size", ["WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"])
def test_a_process_that_leaves_its_launcher_is_alone(size, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv(size, "3")
    leave_launcher()
    assert [launcher_variable(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")] == [None] * 3

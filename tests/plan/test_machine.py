"""What the machine has: processors shared among processes, memory by the machine and by the container."""

import os

import pytest

from widenet.plan.machine import available_memory, available_threads


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({}, 7),
        ({"LOCAL_WORLD_SIZE": "2"}, 3),
        ({"LOCAL_WORLD_SIZE": "8"}, 1),
        ({"WIDENET_THREADS": "5", "LOCAL_WORLD_SIZE": "2"}, 5),
        ({"WIDENET_THREADS": ""}, 7),
    ],
    ids=str,
)
def test_processes_of_one_machine_share_its_processors_unless_told_otherwise(
    environment, threads, monkeypatch
):
    for name in ("WIDENET_THREADS", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7))
    assert available_threads() == threads


@pytest.mark.parametrize(
    ("bound", "sharing", "threads"), [(1, 2, 1), (4, 4, 4), (8, 4, 4), (16, 4, 4), (16, 32, 1)], ids=str
)
def test_a_process_that_mpirun_has_bound_to_processors_shares_those_of_its_launcher(
    bound, sharing, threads, monkeypatch
):
    monkeypatch.delenv("WIDENET_THREADS", raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(sharing))
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda process: range(16 if process == os.getppid() else bound)
    )
    assert available_threads() == threads


@pytest.fixture
def machine(tmp_path):
    """Writes what Linux says of memory: available kB by /proc/meminfo, and a container's files."""

    def of(available=None, **cgroup):
        if available is not None:
            (tmp_path / "meminfo").write_text(
                f"MemTotal:       99999999 kB\nMemFree: 1 kB\nMemAvailable:   {available} kB\nBuffers: 3 kB\n"
            )
        for name, text in cgroup.items():
            (tmp_path / name.replace("_", ".", 1)).write_text(text)
        return tmp_path, tmp_path

    return of


LIMITED = {
    "memory_max": "1000000\n",
    "memory_current": "700000\n",
    "memory_stat": "anon 5\ninactive_file 150000\nactive_file 40000\nslab_reclaimable 10000\n",
}


@pytest.mark.parametrize(
    ("available", "cgroup", "expected"),
    [
        (3000, {}, 3_072_000),
        (3000, LIMITED, 500_000),
        (300, LIMITED, 307_200),
        (3000, {**LIMITED, "memory_max": "max\n"}, 3_072_000),
        (None, LIMITED, 500_000),
        (None, {}, None),
        (3000, {**LIMITED, "memory_current": "2000000\n"}, 0),
    ],
)
def test_memory_is_what_both_the_machine_and_the_container_leave(available, cgroup, expected, machine):
    assert available_memory(*machine(available, **cgroup)) == expected

"""What the machine has: processors shared among processes, memory by the machine and by the container; and
amounts, as people write them.
"""

import os

import pytest

from widenet.plan.machine import available_memory, available_threads
from widenet.plan.numbers import bytes_of


@pytest.mark.parametrize(
    ("environment", "bound", "threads"),
    [
        ({}, 7, 7),
        ({"LOCAL_WORLD_SIZE": "2"}, 7, 3),
        ({"LOCAL_WORLD_SIZE": "8"}, 7, 1),
        ({"WIDENET_THREADS": "5", "LOCAL_WORLD_SIZE": "2"}, 7, 5),
        ({"WIDENET_THREADS": ""}, 7, 7),
        # mpirun has bound the process to some of the launcher's 16.
        ({"LOCAL_WORLD_SIZE": "2"}, 1, 1),
        ({"LOCAL_WORLD_SIZE": "4"}, 4, 4),
        ({"LOCAL_WORLD_SIZE": "4"}, 8, 4),
        ({"LOCAL_WORLD_SIZE": "4"}, 16, 4),
        ({"LOCAL_WORLD_SIZE": "32"}, 16, 1),
    ],
    ids=str,
)
def test_processes_of_one_machine_share_its_processors_unless_told_otherwise(
    environment, bound, threads, monkeypatch
):
    for name in ("WIDENET_THREADS", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    launchers = 7 if bound == 7 else 16
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda process: range(launchers if process == os.getppid() else bound)
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


@pytest.mark.parametrize(
    ("groups", "folder", "names"),
    [
        ("0::/job/step\n", "job", ("memory.max", "memory.current", "inactive_file")),
        (
            "3:cpu:/\n7:memory:/job\n",
            "memory/job",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_the_limit_of_a_group_around_this_process_counts(groups, folder, names, machine, tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(groups)
    (tmp_path / folder).mkdir(parents=True)
    texts = {names[0]: "1000000", names[1]: "700000", "memory.stat": f"{names[2]} 150000\n"}
    for name, text in texts.items():
        (tmp_path / folder / name).write_text(text)
    assert available_memory(*machine(3000)) == 450_000


@pytest.mark.parametrize(
    ("text", "number"),
    [("141GB", 141 * 10**9), (" 80 gib ", 80 * 2**30), ("1.5tb", 15 * 10**11), ("1000000", 10**6)],
)
def test_amounts_are_read(text, number):
    assert bytes_of(text, "memory") == number

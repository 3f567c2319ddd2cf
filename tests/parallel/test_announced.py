"""What a process learns from its launcher."""

import pytest

from widenet.parallel.announced import announced, restarted


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, None), ({"RANK": "2"}, "2"), ({"SLURM_PROCID": "3"}, "3"), ({"RANK": "2", "SLURM_PROCID": "3"}, "2")],
    ids=str,
)
def test_torchrun_is_heard_before_slurm(environment, expected, monkeypatch):
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert announced("RANK") == expected


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
    assert announced("MASTER_ADDR") == NODES[nodes]
    monkeypatch.setenv("MASTER_ADDR", "told")
    assert announced("MASTER_ADDR") == "told"


def test_without_a_list_of_nodes_the_group_meets_where_slurm_was_called(monkeypatch):
    for name in ("MASTER_ADDR", "SLURM_STEP_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1")
    assert announced("MASTER_ADDR") == "10.0.0.1"


@pytest.mark.parametrize(("count", "expected"), [(None, False), ("", False), ("0", False), ("1", True), ("12", True)])
def test_a_process_knows_whether_torchrun_has_started_it_again(count, expected, monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    if count is not None:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
    assert restarted() == expected

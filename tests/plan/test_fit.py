"""Whether a training fits, the fewest devices that hold it, and what is said where none do."""

from dataclasses import replace

import pytest

from widenet.plan.binding import bind
from widenet.plan.layout import Job, Width
from widenet.plan.memory import check_fits, memory, smallest, with_room, with_snapshots
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

NETWORK = NetworkSpec.of(
    {
        "layers": [
            {"name": "in", "kind": "input", "field": "items"},
            {"name": "mid", "units": 100},
            {"name": "out", "kind": "output", "field": "items"},
        ]
    }
)
GB = 10**9


def job(num_processes=1, width=10**8, shards=8, optimizer="adam"):
    training = TrainingSpec.of({"shards": shards, "optimizer": optimizer})
    return Job(bind(NETWORK, training, {"items": Width(width)}), num_processes=num_processes, device="cuda")


@pytest.mark.parametrize("device_bytes", [400 * GB, 100 * GB, 40 * GB, 10 * GB])
def test_the_smallest_number_fits_and_the_next_smaller_does_not(device_bytes):
    found = smallest(job(), device_bytes)
    assert memory(found).total <= device_bytes
    for number in range(1, found.num_processes):
        assert memory(with_room(replace(found, num_processes=number), device_bytes)).total > device_bytes
    if found.training.shards > 8:
        half = found.training.shards // 2
        fewer_shards = found.training.model_copy(update={"shards": half})
        fewer = replace(found, layout=replace(found.layout, training=fewer_shards), num_processes=half)
        assert memory(fewer).total > device_bytes


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("limit", [None, 1.0])
@pytest.mark.parametrize("device_bytes", [5 * GB, 8 * GB, 24 * GB, 141 * GB])
def test_a_device_keeps_the_logits_that_it_has_room_for(device_bytes, limit, optimizer):
    training = TrainingSpec.of({"optimizer": optimizer, "gradient_norm_limit": limit, "batch_size": 2048})
    asked = Job(bind(NETWORK, training, {"items": Width(10**6)}), device="cuda")
    found, least = with_room(asked, device_bytes), replace(asked, kept_bytes=0)
    assert memory(least).total <= memory(found).total <= device_bytes
    check_fits(asked, memory(least).total)
    logits = 4 * 2048 * 10**6
    assert found.keeps(NETWORK.outputs[0], 0) == (device_bytes - memory(least).total >= 2 * logits)
    assert found.keeps(NETWORK.outputs[0], 0) == (device_bytes > 22 * GB)
    assert with_room(replace(asked, device="cpu"), device_bytes) == replace(asked, device="cpu")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_job_has_snapshots_where_the_machine_has_room_for_those_of_all_its_processes(device):
    training = TrainingSpec.of({"checkpoints": {"every_steps": 1}})
    asked = Job(bind(NETWORK, training, {"items": Width(10**6)}), num_processes=2, device=device)
    needed = memory(asked)
    copied = memory(replace(asked, device="cpu"))  # without the rows that align shards on a device
    each = needed.total - needed.program if device == "cpu" else copied.weights + copied.state
    assert with_snapshots(asked, 2, 2 * each).in_background
    assert not with_snapshots(asked, 2, 2 * each - 1).in_background

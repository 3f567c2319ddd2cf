"""Whether a training fits, the fewest devices that hold it, and what is said where none do."""

from dataclasses import replace
from pathlib import Path

import pytest

from widenet.errors import CapacityError
from widenet.plan.binding import bind
from widenet.plan.fit import check_disk, check_fits, check_fits_here, smallest, with_room, with_snapshots
from widenet.plan.job import Job
from widenet.plan.layout import Width
from widenet.plan.memory import keeps, memory
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
    return Job.of(
        bind(NETWORK, training, {"items": Width(width)}), num_processes=num_processes, device="cuda"
    )


@pytest.mark.parametrize("device_bytes", [400 * GB, 200 * GB, 100 * GB, 50 * GB, 40 * GB, 10 * GB, 2 * GB])
def test_the_smallest_number_fits_and_the_next_smaller_does_not(device_bytes):
    found = smallest(job(), device_bytes)
    assert memory(found).total <= device_bytes
    for number in range(1, found.num_processes):
        assert memory(with_room(replace(found, num_processes=number), device_bytes)).total > device_bytes
    if found.training.shards > 8:
        fewer = replace(found, layout=found.layout.with_shards(found.training.shards // 2))
        assert memory(replace(fewer, num_processes=fewer.training.shards)).total > device_bytes


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("limit", [None, 1.0])
@pytest.mark.parametrize("device_bytes", [5 * GB, 8 * GB, 24 * GB, 141 * GB])
def test_a_device_keeps_the_logits_that_it_has_room_for(device_bytes, limit, optimizer):
    training = TrainingSpec.of({"optimizer": optimizer, "gradient_norm_limit": limit, "batch_size": 2048})
    asked = Job.of(bind(NETWORK, training, {"items": Width(10**6)}), device="cuda")
    found, least = with_room(asked, device_bytes), replace(asked, kept_bytes=0)
    assert memory(least).total <= memory(found).total <= device_bytes
    check_fits(asked, memory(least).total)
    logits = 4 * 2048 * 10**6
    assert keeps(found, NETWORK.outputs[0], 0) == (device_bytes - memory(least).total >= 2 * logits)
    assert keeps(found, NETWORK.outputs[0], 0) == (device_bytes > 22 * GB)
    assert with_room(replace(asked, device="cpu"), device_bytes) == replace(asked, device="cpu")


def test_none_holds_what_every_process_must_have():
    assert smallest(job(), 10**9) is None


def test_what_fits_is_let_pass():
    check_fits(job(), memory(job()).total)
    check_fits_here(job(2), 2, 2 * memory(job(2)).total)


@pytest.mark.parametrize(
    ("asked", "device_bytes", "message"),
    [
        (
            job(2),
            141 * GB,
            (
                "The plan needs 123 GB on each of 2 devices (optimizer state 80.4 GB, weights 40.2 GB); each"
                " has 100 GB. Use 3 devices. With `weights_in='host'` it needs 3.95 GB."
            ),
        ),
        (
            job(),
            20 * GB,
            (
                "The plan needs 244 GB on 1 device (optimizer state 161 GB, weights 80.4 GB); each has 20.0"
                " GB. Use 16 devices and \"shards\": 16. With `weights_in='host'` it needs 4.57 GB."
            ),
        ),
        (
            job(optimizer="sgd"),
            GB,
            (
                "The plan needs 82.9 GB on 1 device (weights 80.4 GB, workspace 1.49 GB); each has 1.00 GB. "
                'Lower "units" or "batch_size": no number of devices up to 1024 holds it.'
                " With `weights_in='host'` it needs 3.12 GB."
            ),
        ),
    ],
    ids=["more devices", "more shards", "none"],
)
def test_the_message_names_the_need_and_the_remedy(asked, device_bytes, message):
    with pytest.raises(CapacityError) as error:
        check_fits(asked, 100 * GB if device_bytes == 141 * GB else device_bytes)
    assert str(error.value) == message


def test_the_message_of_one_machine_adds_its_processes_up():
    with pytest.raises(CapacityError) as error:
        check_fits_here(job(2), 2, 24 * GB)
    assert (
        str(error.value)
        == "The plan needs 2 processes of 123 GB on this machine (optimizer state 80.4 GB, weights 40.2 GB);"
        ' it has 24.0 GB to give. Lower "units" or "batch_size", take an optimizer with less state ("sgd"'
        " has none), keep the weights on a disk (`weights_in='disk'`), or divide it among several machines:"
        " widenet plan tells how many of a size that `device_memory` names."
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_job_has_snapshots_where_the_machine_has_room_for_those_of_all_its_processes(device):
    training = TrainingSpec.of({"checkpoints": {"every_minutes": 1}})
    asked = Job.of(bind(NETWORK, training, {"items": Width(10**6)}), num_processes=2, device=device)
    needed = memory(asked)
    copied = memory(replace(asked, device="cpu"))  # without the rows that align shards on a device
    each = needed.total - needed.program if device == "cpu" else copied.weights + copied.state
    assert with_snapshots(asked, 2, 2 * each).in_background
    assert not with_snapshots(asked, 2, 2 * each - 1).in_background


def test_a_disk_must_hold_what_all_processes_put_there():
    check_disk([3 * GB, 2 * GB], 5 * GB, Path("runs"))
    with pytest.raises(CapacityError) as error:
        check_disk([3 * GB, 2 * GB], 5 * GB - 1, Path("runs"))
    assert (
        str(error.value)
        == "runs must have room for 5.00 GB of weights and optimizer state; it has 5.00 GB. Free some space,"
        " or name a folder on another disk with `scratch`."
    )


def test_weights_on_a_disk_keep_the_logits_that_memory_has_room_for_and_no_more_than_others():
    asked = replace(job(width=10**5), device="cpu", weights_in="disk")
    least = memory(replace(asked, kept_bytes=0)).total
    assert with_room(asked, least).kept_bytes == 0
    assert with_room(asked, least + 10**6).kept_bytes == 10**6 // 2
    assert with_room(asked, 100 * GB).kept_bytes == 2**29


def test_memory_that_does_not_hold_a_tile_is_refused():
    asked = replace(job(width=10**7), device="cpu", weights_in="disk", kept_bytes=0)
    needed = memory(asked)
    check_fits_here(asked, 1, needed.total - needed.program)
    with pytest.raises(CapacityError, match="weights elsewhere, in part"):
        check_fits_here(asked, 1, needed.total - needed.program - 1)

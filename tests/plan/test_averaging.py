"""What averaging takes: memory by the replicas of a process, and an average's bytes shared by its steps."""

import pytest

from widenet.errors import FitError, OptionError
from widenet.plan.averaging import average_bytes
from widenet.plan.binding import bind
from widenet.plan.fit import elsewhere, smallest
from widenet.plan.job import Job, steps_per_epoch
from widenet.plan.layout import Width
from widenet.plan.memory import memory
from widenet.plan.report import report
from widenet.plan.work import work
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

WIDTH, UNITS = 100_000, 32
NETWORK = NetworkSpec.of(
    {
        "layers": [
            {"name": "history", "kind": "input", "field": "items"},
            {"name": "taste", "units": UNITS},
            {"name": "next", "kind": "output", "field": "items"},
        ]
    }
)
NUMBERS = 2 * WIDTH * UNITS + WIDTH + UNITS


def job(processes, averaging=None):
    training = TrainingSpec.of({"optimizer": "adam", "averaging": averaging})
    return Job.of(bind(NETWORK, training, {"items": Width(WIDTH)}), num_processes=processes)


@pytest.mark.parametrize(("processes", "held"), [(1, 3), (2, 2), (3, 1)])
def test_a_process_holds_the_weights_and_state_of_its_replicas(processes, held):
    needed = memory(job(processes, {"replicas": 3, "every": 5}))
    assert needed.weights == held * 4 * NUMBERS
    assert needed.state == 2 * needed.weights


@pytest.mark.parametrize(("processes", "times"), [(1, 0), (2, (2 + 1) / 2), (3, (1 + 1) * 2 / 3)])
def test_a_step_has_its_part_of_the_bytes_of_an_average(processes, times):
    averaged = job(processes, {"replicas": 3, "every": 5})
    assert average_bytes(averaged) == pytest.approx(times * 3 * 4 * NUMBERS)
    assert work(averaged).sent_bytes == pytest.approx(average_bytes(averaged) / 5, abs=1)


def test_every_replica_needs_an_example():
    training = TrainingSpec.of({"averaging": {"replicas": 5, "every": 2}})
    layout = bind(NETWORK, training, {"items": Width(WIDTH)})
    assert Job.of(layout, None, 5).num_examples == 5
    with pytest.raises(
        FitError, match=r"averaging\.replicas must be at most the number of examples, 4; got 5"
    ):
        Job.of(layout, None, 4)


@pytest.mark.parametrize(
    ("examples", "steps"), [(3, 1), (24, 1), (26, 1), (27, 2), (48, 2), (50, 2), (51, 3)]
)
def test_an_epoch_has_the_steps_that_training_makes(examples, steps):
    """Fewer examples than there are replicas join the last step."""
    training = TrainingSpec.of({"batch_size": 8, "averaging": {"replicas": 3, "every": 5}})
    planned = Job.of(bind(NETWORK, training, {"items": Width(WIDTH)}), None, examples)
    assert steps_per_epoch(examples, planned.num_examples, planned.replicas) == steps


def test_a_process_does_the_work_of_its_replicas():
    alone = work(job(1)).operations
    assert [work(job(n, {"replicas": 2, "every": 5})).operations for n in (1, 2)] == [2 * alone, alone]


def test_a_report_counts_processes_and_one_replica_in_a_checkpoint():
    found = report(job(2, {"replicas": 3, "every": 5}), 10**12)
    assert [process["shards"] for process in found["processes"]] == [[0, 8]] * 2
    assert found["checkpoint_bytes"] == report(job(1), None)["checkpoint_bytes"]
    assert found["fewest"]["processes"] == 1


def test_the_fewest_devices_hold_a_replica_each():
    averaged = job(1, {"replicas": 3, "every": 5})
    one = memory(job(3, {"replicas": 3, "every": 5})).total
    assert smallest(averaged, one).all_processes == 3
    assert smallest(averaged, one - 1) is None


def test_replicas_stay_on_the_device():
    averaged = job(1, {"replicas": 3, "every": 5})
    assert elsewhere(averaged) is None
    with pytest.raises(OptionError, match='`weights_in` must be "device"'):
        Job(averaged.layout, averaged.entries, 256, weights_in="host")

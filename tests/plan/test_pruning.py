"""How many numbers stay after each step, which weights are pruned, and what is refused."""

from dataclasses import replace

import pytest

from widenet.errors import DocumentError, FitError
from widenet.plan.all_rows import all_rows_bytes, row_copies
from widenet.plan.binding import bind
from widenet.plan.job import Job
from widenet.plan.layout import Width
from widenet.plan.memory import memory
from widenet.plan.pruning import Schedule, pruned_bytes, pruned_row_bytes, schedule_of
from widenet.spec.network import NetworkSpec
from widenet.spec.training import Pruning, TrainingSpec

FIELDS = {"items": Width(50, described={"genre": 4})}


def layers(hidden=(), output=()):
    return {
        "layers": [
            {"name": "in", "kind": "input", "field": "items"},
            {"name": "mid", "units": 16, **dict(hidden)},
            {"name": "deep", "units": 40},
            {"name": "out", "kind": "output", "field": "items", **dict(output)},
        ]
    }


def bound(nonzeros, hidden=(), output=()):
    training = TrainingSpec.of({"pruning": {"nonzeros": nonzeros}})
    return bind(NetworkSpec.of(layers(hidden, output)), training, FIELDS)


def test_the_number_falls_along_a_cubic_curve_and_then_stays():
    schedule, steps = Schedule(Pruning(nonzeros=34, start=0.25, stop=0.75), 512), 6400
    kept = [schedule.kept(step, steps) for step in range(steps + 1)]
    assert kept[:1601] == [512] * 1601
    assert kept[4800:] == [34] * 1601
    assert kept == sorted(kept, reverse=True)
    for step in range(1600, 4801, 100):  # of 32 times, each 100 steps after the one before
        left = 1 - (step - 1600) / 3200
        assert kept[step] == pytest.approx(34 + (512 - 34) * left**3, abs=0.51)
    due = [step for step in range(1, steps + 1) if schedule.is_due(step, steps)]
    assert due[:2] == [1700, 1800]
    assert len(due) == 29  # the last times round to as many as the one before
    assert not schedule.has_begun(1700, steps)
    assert schedule.has_begun(1701, steps)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 31, 33])
@pytest.mark.parametrize("stop", [0.01, 0.5, 1.0])
def test_few_steps_are_enough(steps, stop):
    schedule = Schedule(Pruning(nonzeros=3, start=0, stop=stop), 20)
    assert schedule.kept(steps, steps) == 3
    assert schedule.kept(0, steps) == 20


def test_vectors_of_sparse_inputs_and_outputs_are_pruned():
    layout = bound(20)
    pruned = {name for name, weight in layout.weights.items() if schedule_of(layout, weight) is not None}
    assert pruned == {"out"}
    layout = bound(3)
    pruned = {name for name, weight in layout.weights.items() if schedule_of(layout, weight) is not None}
    assert pruned == {"mid/in", "out"}
    layout = bound(3, {"frozen": True})
    pruned = {name for name, weight in layout.weights.items() if schedule_of(layout, weight) is not None}
    assert pruned == {"out"}


def test_what_cannot_be_pruned_is_refused():
    with pytest.raises(
        FitError, match=r"pruning\.nonzeros must be less than the 40 numbers .* got 40\. Lower"
    ):
        bound(40)
    with pytest.raises(FitError, match=r'pruning must be unset .* as "mid/in" does\. Remove it, or'):
        bound(3, {"described_by": "genre"})
    for wrong, words in (
        ({"nonzeros": 0}, "nonzeros"),
        ({"nonzeros": 3, "start": 0.5, "stop": 0.5}, "start must be less than stop; got 0.5 and 0.5"),
        ({"nonzeros": 3, "stop": 1.5}, "stop"),
    ):
        with pytest.raises(DocumentError, match=words):
            TrainingSpec.of({"pruning": wrong})
    with pytest.raises(DocumentError, match='weight_precision "bfloat16" excludes pruning'):
        TrainingSpec.of({"pruning": {"nonzeros": 3}, "weight_precision": "bfloat16"})
    with pytest.raises(DocumentError, match="averaging excludes pruning"):
        TrainingSpec.of({"pruning": {"nonzeros": 3}, "averaging": {"every": 2}})
    with pytest.raises(DocumentError, match="brake must be false beside pruning"):
        TrainingSpec.of({"pruning": {"nonzeros": 3}, "brake": True})


def test_the_bytes_of_the_run_that_prune_makes_are_counted():
    """A number has 4 bytes and its column 1; short vectors and biases stay whole."""
    layout = bound(20)
    whole = 50 * 16 + 16 + 16 * 40 + 40 + 50
    assert pruned_bytes(layout) == 4 * whole + 50 * 20 * 5
    assert pruned_bytes(replace(layout, training=TrainingSpec.of({}))) is None
    long = replace(layout.weights["out"], columns=300)
    assert (pruned_row_bytes(long, 3), pruned_row_bytes(long, 300)) == (3 * 6, 300 * 4)


def test_a_training_has_room_to_prune_all_rows_and_to_note_their_zeros():
    fields = {"items": Width(10_000)}
    dense, pruned = (
        Job.of(bind(NetworkSpec.of(layers()), TrainingSpec.of(training), fields), num_threads=3)
        for training in ({}, {"pruning": {"nonzeros": 4}})
    )
    weight = pruned.layout.weights["out"]
    assert (row_copies(dense, weight), row_copies(pruned, weight)) == (0, weight.row_length)
    assert (all_rows_bytes(dense, 0), all_rows_bytes(pruned, 0)) == (0, 3 * 8 * 1250 * 4 * 40)
    assert memory(pruned).workspace > memory(dense).workspace

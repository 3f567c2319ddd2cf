"""What the traffic of a step depends on."""

from widenet.plan.binding import bind
from widenet.plan.layout import Job, Width
from widenet.plan.memory import work
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

EXAMPLES = 6


def test_an_output_on_a_sparse_input_sends_nothing_of_its_entries():
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "out", "kind": "output", "field": "items", "activation": "sigmoid"},
    ]
    spec = TrainingSpec.of({"batch_size": EXAMPLES, "optimizer": "adagrad"})
    for width in (800, 1600):
        layout = bind(NetworkSpec.of({"layers": layers}), spec, {"items": Width(width)})
        assert work(Job(layout, {"items": 5.0}, num_processes=2)).sent_bytes == 8 * EXAMPLES

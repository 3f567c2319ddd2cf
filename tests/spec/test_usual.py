"""The documents of a training of which nobody has written any."""

import pytest

from widenet.spec.network import NetworkSpec
from widenet.spec.usual import usual_network, usual_training


@pytest.mark.parametrize("is_sequence", [True, False])
def test_a_network_reads_and_asks_for_the_field_with_one_vector_a_feature(is_sequence):
    network = usual_network("songs", is_sequence, 9)
    assert network.fields == ("songs",)
    assert [layer.kind for layer in network.hidden] == (
        ["hidden", "recurrent"] if is_sequence else ["hidden"]
    )
    [output] = network.outputs
    assert (output.weights[0].layer, output.predict) == ("taste", "next" if is_sequence else "all")
    assert output.cosine.temperature == 0.1
    assert NetworkSpec.parse(network.to_json()) == network


@pytest.mark.parametrize(
    ("features", "units", "deviation", "along"),
    [
        (2**19, 512, 0.04, 128),
        (2**19 + 1, 256, 0.056, 128),
        (2**21 + 1, 64, 0.113, 64),
        (2**32, 64, 0.113, 64),
    ],
)
def test_a_network_is_as_wide_as_its_features_allow(features, units, deviation, along):
    taste = usual_network("songs", False, features).layer("taste")
    assert (taste.units, taste.initializer.deviation) == (units, deviation)
    sequence = usual_network("songs", True, features)
    assert [sequence.layer(name).units for name in ("taste", "state")] == [along, along]


@pytest.mark.parametrize(
    ("examples", "epochs", "every"),
    [(0, 20, 2), (1024, 20, 2), (8000, 14, 2), (20_000, 6, 1), (48_871, 4, 1), (10**9, 4, 1)],
)
def test_a_training_of_the_default_network_has_about_450_steps_and_ten_evaluations(examples, epochs, every):
    training = usual_training(True, examples, mean_entries=50)
    assert (training.epochs, training.evaluation.every_epochs) == (epochs, every)
    other = usual_training(True, examples)
    assert (other.epochs, other.evaluation.every_epochs) == (10, 1)


@pytest.mark.parametrize(
    ("mean", "epochs", "rate"),
    [(None, 10, 0.01), (0, 8, 0.02), (39.9, 8, 0.02), (40, 4, 0.01), (1e9, 4, 0.01)],
)
def test_rare_features_have_twice_the_steps_and_learning_rate(mean, epochs, rate):
    training = usual_training(False, 29_858, mean)
    assert (training.epochs, training.optimizer.learning_rate) == (epochs, rate)
    along = usual_training(False, 29_858, mean, is_sequence=True)
    assert (along.epochs, along.optimizer.learning_rate) == (10, rate)

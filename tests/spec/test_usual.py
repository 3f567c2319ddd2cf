"""The documents of a training of which nobody has written any."""

import pytest

from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.spec.usual import usual_network, usual_training


@pytest.mark.parametrize("is_sequence", [True, False])
def test_a_network_reads_and_asks_for_the_field_with_one_vector_a_feature(is_sequence):
    network = usual_network("songs", is_sequence)
    assert network.fields == ("songs",)
    assert [layer.kind for layer in network.hidden] == (
        ["hidden", "recurrent"] if is_sequence else ["hidden"]
    )
    [output] = network.outputs
    assert (output.weights[0].layer, output.predict) == ("taste", "next" if is_sequence else "all")
    assert NetworkSpec.parse(network.to_json()) == network


@pytest.mark.parametrize("is_sequence", [True, False])
def test_a_network_reads_the_descriptions_that_there_are(is_sequence):
    plain, described = usual_network("songs", is_sequence), usual_network("songs", is_sequence, ["genre"])
    assert plain.layer("taste").described_by is None
    assert described.layer("taste").described_by == ("genre",)


def test_a_training_is_evaluated_where_there_is_a_part_to_choose_by():
    chosen, whole = usual_training(True, 4096), usual_training(False, 4096)
    assert (whole.evaluation, whole.keep, chosen.keep) == (None, "last", "best")
    assert chosen.evaluation is not None
    assert (chosen.evaluation.metric, chosen.evaluation.stop_after) == ("ndcg@20", 3)
    for training in (chosen, whole):
        assert TrainingSpec.parse(training.to_json()) == training


@pytest.mark.parametrize(
    ("examples", "batch"),
    [(0, 8), (1, 8), (255, 8), (256, 16), (1000, 32), (1024, 64), (4095, 128), (4096, 256), (10**9, 256)],
)
def test_an_epoch_of_few_examples_has_at_least_16_batches_of_8_or_more(examples, batch):
    assert usual_training(True, examples).batch_size == batch

"""Training documents: a sentence for every mistake."""

import pytest

from tests.spec.test_rules import FLOAT32, network
from widenet.errors import DocumentError
from widenet.spec.training import TrainingSpec

TRAINING_MISTAKES = [
    (None, " must be a JSON object with named fields; got null."),
    ({"epochs": "3"}, ': epochs must be a whole number, without quotes; got "3".'),
    ({"epochs": 0}, ": epochs must be at least 1; got 0."),
    (
        network(),
        (
            " is a network document and stands where the training document belongs. Give the network first,"
            " then the training."
        ),
    ),
    ({"epoch": 3}, ': epoch is not a known field. Did you mean "epochs"?'),
    ({"optimizer": "adm"}, ': optimizer must be a known name; got "adm". Did you mean "adam"?'),
    (
        {"optimizer": {"kind": "adam", "lerning_rate": 1}},
        ': optimizer.lerning_rate is not a known field. Did you mean "learning_rate"?',
    ),
    (
        {"optimizer": {"kind": "sgd", "momentum": 0.9}},
        ": optimizer.momentum is not a known field. Known: kind, learning_rate.",
    ),
    (
        {"optimizer": {"kind": "adam", "learning_rate": 0}},
        ": optimizer.learning_rate must be more than 0.0; got 0.",
    ),
    ({"optimizer": {"kind": "adam", "beta1": 1.0}}, ": optimizer.beta1 must be less than 1.0; got 1.0."),
    (
        {"optimizer": {"kind": "adamw", "weight_decay": -1}},
        ": optimizer.weight_decay must be at least 0.0; got -1.",
    ),
    ({"optimizer": {}}, ': optimizer.kind is missing. Add "kind".'),
    (
        {"schedule": {"kind": "step", "every": 3}},
        ": schedule.every is not a known field. Known: kind, every_epochs, factor.",
    ),
    ({"schedule": "cosin"}, ': schedule must be a known name; got "cosin". Did you mean "cosine"?'),
    ({"seed": -1}, ": seed must be at least 0; got -1."),
    ({"seed": 2**63}, ": seed must be less than 9223372036854775808; got 9223372036854775808."),
    ({"l2": 1e300}, f": l2 {FLOAT32}; got 1e+300."),
    (
        {"optimizer": {"kind": "adam", "learning_rate": 1e39}},
        f": optimizer.learning_rate {FLOAT32}; got 1e+39.",
    ),
    ({"schedule": {"kind": "inverse", "decay": 3.5e38}}, f": schedule.decay {FLOAT32}; got 3.5e+38."),
    ({"l2": float("nan")}, ": l2 must be a finite number; got NaN."),
    ({"gradient_norm_limit": 0}, ": gradient_norm_limit must be more than 0.0; got 0."),
    (
        {"precision": "float16"},
        ': precision must be one of float32, tf32, bfloat16; got "float16". Did you mean "bfloat16"?',
    ),
    ({"shards": 1025}, ": shards must be at most 1024; got 1025."),
    ({"keep": "best"}, ': keep "best" needs an evaluation. Add "evaluation": {}.'),
    ({"evaluation": []}, ": evaluation must be an object with named fields; got []."),
    (
        {"evaluation": {"metrik": "ndcg@5"}},
        ': evaluation.metrik is not a known field. Did you mean "metric"?',
    ),
    ({"evaluation": {"part": "test"}}, ': evaluation.part must be one of validation, heldout; got "test".'),
    ({"checkpoints": {"keep": 3}}, ': checkpoints.keep is not a known field. Did you mean "keep_last"?'),
    ({"shuffle": "yes"}, ': shuffle must be true or false; got "yes".'),
]


@pytest.mark.parametrize(
    ("values", "message"), TRAINING_MISTAKES, ids=[message[:70] for _, message in TRAINING_MISTAKES]
)
def test_a_mistake_in_a_training_gives_one_sentence(values, message):
    with pytest.raises(DocumentError) as caught:
        TrainingSpec.of(values, "training.json")
    assert str(caught.value) == f"training.json{message}"


def test_the_numbers_at_the_edges_of_float32_are_welcome():
    for number in (3.4028234663852886e38, 1.1754943508222875e-38, 0.0, 0):
        assert TrainingSpec.of({"l2": number}).l2 == number

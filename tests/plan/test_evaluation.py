"""What an evaluation asks for, by the two documents alone."""

import pytest

from widenet.errors import DocumentError, FitError
from widenet.plan.binding import check_evaluation
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

OUTPUTS = [{"name": name, "kind": "output", "field": name, "source": "taste"} for name in ("next", "tag")]
INPUTS = [{"name": "in", "kind": "input", "field": "next"}, {"name": "taste", "units": 2}]


def asked(evaluation, outputs=OUTPUTS[:1]):
    network = NetworkSpec.of({"layers": [*INPUTS, *outputs]})
    return check_evaluation(network, TrainingSpec.of({"evaluation": evaluation}, "training.json"))


def test_the_output_that_is_ranked_and_the_k_of_the_metric():
    assert asked(None) is None
    for evaluation, outputs in (({}, OUTPUTS[:1]), ({"output": "next"}, OUTPUTS)):
        layer, k = asked(evaluation, outputs)
        assert (layer.name, k) == ("next", 20)
    assert asked({"metric": "recall@7"})[1] == 7


MISTAKES = [
    ({}, OUTPUTS, FitError, r"evaluation\.output must name one of the outputs: next, tag"),
    ({"output": "nex"}, OUTPUTS, FitError, r'evaluation\.output must be one of next, tag; got "nex"'),
    (
        {"metric": "recall@0"},
        OUTPUTS[:1],
        DocumentError,
        r'evaluation\.metric: metric "recall@0" must end with "@" and a whole number',
    ),
    (
        {"metric": "popularity@5"},
        OUTPUTS[:1],
        DocumentError,
        r'better when larger .* got "popularity@5"\. Use "ndcg@5"',
    ),
]


@pytest.mark.parametrize(("evaluation", "outputs", "error", "message"), MISTAKES)
def test_what_cannot_be_evaluated_is_one_sentence(evaluation, outputs, error, message):
    with pytest.raises(error, match=message):
        asked(evaluation, outputs)

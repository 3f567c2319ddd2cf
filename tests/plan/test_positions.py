"""Which layers go along a sequence, what of it does not fit, and what a plan counts of it."""

import pytest

from tests.sequences import HISTORY, NEXT, gru
from widenet.plan.binding import sequences_of
from widenet.spec.network import NetworkSpec

TAGS = {"name": "tags", "kind": "input", "field": "tags"}
ABOVE = {"name": "above", "units": 5}


def spec(*layers):
    return NetworkSpec.of({"layers": list(layers)})


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        ([HISTORY, ABOVE, NEXT], {"items"}),
        ([{**HISTORY, "last": 3}, ABOVE, {"name": "out", "kind": "output", "field": "tags"}], {"items"}),
        ([HISTORY, ABOVE, gru(), {"name": "out", "kind": "output", "field": "tags"}], {"items"}),
        ([TAGS, ABOVE, {"name": "out", "kind": "output", "field": "items"}], set()),
    ],
    ids=["next", "last", "recurrent", "none"],
)
def test_a_document_tells_which_fields_are_sequences(layers, found):
    assert sequences_of(spec(*layers)) == found

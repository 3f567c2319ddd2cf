"""Whatever stands in a document: it is read, or it is a mistake of the user; nothing else comes out."""

import copy
import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.interop.networks import SPATIAL
from tests.movielens import SAMPLE
from tests.trainings import NORMALIZED
from widenet.errors import WidenetError
from widenet.plan.binding import bind
from widenet.plan.layout import Job, Width
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

TRAINING = {
    "epochs": 2,
    "optimizer": {"kind": "adam", "learning_rate": 0.01},
    "schedule": {"kind": "cosine"},
    "evaluation": {"metric": "recall@3", "part": "heldout"},
    "checkpoints": {"keep_last": 2},
    "precision": "bfloat16",
    "l2": 0.1,
}
NAMES = ["next", "items", "kind", "input", "output", "auto", "softmax", "l2", "sgd", "name", "units", "shape"]
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from([0.5, -0.0, 1e-300, 1e300, 2**31, 2**63, 10**30, *NAMES]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
)


def places(value, path=()):
    """Where something stands within a document, the document itself first."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*path, key))


@st.composite
def changed(draw, documents):
    """A document in which up to three values are replaced, removed, repeated or added."""
    whole = [copy.deepcopy(draw(st.sampled_from(documents)))]
    for _ in range(draw(st.integers(1, 3))):
        *way, last = (0, *draw(st.sampled_from(list(places(whole[0])))))
        owner = whole
        for key in way:
            owner = owner[key]
        change = draw(st.sampled_from(["replace", "remove", "repeat", "add"]))
        if change == "replace" or owner is whole:
            owner[last] = draw(VALUES)
        elif change == "remove":
            del owner[last]
        elif isinstance(owner, list):
            owner.append(copy.deepcopy(owner[last]) if change == "repeat" else draw(VALUES))
        else:
            owner[draw(st.sampled_from(NAMES))] = owner[last] if change == "repeat" else draw(VALUES)
    return whole[0]


def planned(text):
    network = NetworkSpec.parse(text, "network.json")
    assert NetworkSpec.parse(network.to_json()) == network
    dense = {layer.field for layer in network.inputs if layer.shape}
    fields = {name: Width(64, kind="dense" if name in dense else "sparse") for name in network.fields}
    layout = bind(network, TrainingSpec.of({"shards": 2}), fields)
    Job(layout, num_processes=1, device="cpu", num_threads=1)


def read(text):
    training = TrainingSpec.parse(text, "training.json")
    assert TrainingSpec.parse(training.to_json()) == training


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("number", "documents", "use"),
    [
        (2_000, [NORMALIZED, {"layers": SPATIAL}], planned),
        (1_000, [TRAINING], read),
        (1_000, [SAMPLE], planned),
    ],
    ids=["network", "training", "DSSTNE"],
)
def test_a_changed_document_is_taken_or_refused(number, documents, use, share):
    @settings(max_examples=number // share, derandomize=True, deadline=None, database=None)
    @given(changed(documents))
    def rule(document):
        with suppress(WidenetError):
            use(json.dumps(document))

    rule()

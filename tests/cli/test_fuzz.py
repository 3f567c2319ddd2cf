"""Whatever stands in a document or in a source: it is read, or it is a mistake of the user; nothing else
comes out.
"""

import copy
import json
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainings import NORMALIZED
from widenet.data.ingest import ingest
from widenet.data.ingest_arguments import IngestArguments
from widenet.data.read import open_file
from widenet.data.source import Reading, table_of
from widenet.dsstne.spec.network import is_dsstne, translation
from widenet.errors import WidenetError
from widenet.plan.binding import bind
from widenet.plan.layout import Job, Width
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

PICTURES = {
    "layers": [
        {"name": "picture", "kind": "input", "field": "items", "shape": [8, 8, 1]},
        {"name": "edges", "kind": "convolution", "kernel": [3, 3], "filters": 2, "stride": 2},
        {"name": "near", "kind": "pooling", "function": "max", "kernel": [2, 2]},
        {"name": "next", "kind": "output", "field": "items", "activation": "sigmoid"},
    ]
}
NETWORKS = [NORMALIZED, PICTURES]
TRAINING = {
    "epochs": 2,
    "batch_size": 4,
    "shards": 2,
    "seed": 1,
    "optimizer": {"kind": "adam", "learning_rate": 0.01},
    "schedule": {"kind": "cosine"},
    "evaluation": {"metric": "recall@3", "part": "heldout"},
    "checkpoints": {"keep_last": 2},
    "precision": "bfloat16",
    "l2": 0.1,
}
DSSTNE = {
    "Name": "x",
    "ShuffleIndices": False,
    "Denoising": {"p": 0.2},
    "ErrorFunction": "ScaledMarginalCrossEntropy",
    "Layers": [
        {"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": True},
        {
            "Name": "H",
            "Kind": "Hidden",
            "Type": "FullyConnected",
            "N": 4,
            "Activation": "Sigmoid",
            "Source": "In",
            "pDropout": 0.5,
        },
        {
            "Name": "Out",
            "Kind": "Output",
            "DataSet": "gl_output",
            "N": "auto",
            "Activation": "Sigmoid",
            "Sparse": True,
        },
    ],
}
NAMES = [
    "history", "taste", "next", "items", "kind", "input", "output", "auto", "softmax", "relu", "l2", "sgd",
    "name", "units", "shape",
]  # fmt: skip
NUMBERS = st.one_of(st.integers(-3, 9), st.sampled_from([0.5, -0.0, 1e-300, 1e300, 2**31, 2**63, 10**30]))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
"""What `st.text` gives, which would try every character first."""
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from(NAMES), TEXT)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
)


def places(value, path=()):
    """Where something stands within a document, the document itself first."""
    yield path
    for key, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
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


def a_changed_network_is_planned_or_refused(_, document):
    with suppress(WidenetError):
        network = NetworkSpec.parse(json.dumps(document), "network.json")
        assert NetworkSpec.parse(network.to_json()) == network
        fields = {
            name: Width(
                64,
                kind=(
                    "dense" if name in {layer.field for layer in network.inputs if layer.shape} else "sparse"
                ),
            )
            for name in network.fields
        }
        Job(
            bind(network, TrainingSpec.of({"shards": 2}), fields),
            num_processes=1,
            device="cpu",
            num_threads=1,
        )


def a_changed_training_is_read_or_refused(_, document):
    with suppress(WidenetError):
        training = TrainingSpec.parse(json.dumps(document), "training.json")
        assert TrainingSpec.parse(training.to_json()) == training


def a_changed_dsstne_network_is_translated_or_refused(_, document):
    with suppress(WidenetError):
        values = NetworkSpec.values_of(json.dumps(document), "config.json")
        if is_dsstne(values):
            NetworkSpec.of(translation(values, "config.json").network)


def any_text_is_a_document_or_refused(_, text):
    with suppress(WidenetError):
        NetworkSpec.parse(text)


WORDS = [
    "u1", "7", "item", "user", '"', '"a', "nan", "1e39", "[1,2]", "{}", "null", "NaN", "a:b", "a,1:b,x",
    "\ufffd", "\u00e9",
]  # fmt: skip
CELLS = st.sampled_from([*WORDS, "", " ", "\0"])
MARKS = st.sampled_from([",", "\t", "\n", "\r\n", ":", ";", " ", '{"user":', ',"item":', "}", "\n\n"])
FORMATS = ["csv", "jsonl", "dsstne", "adjacency", "sessions", None]
LINES = st.lists(st.one_of(CELLS, MARKS), max_size=14).map("".join)


def the_first_mistake_of_any_lines_is_found(folder, lines, has_header, form):
    path = folder / "lines"
    path.write_text(f"user,item\n{lines}" if has_header else lines, newline="")
    with suppress(WidenetError):
        source = open_file(path, "lines", Reading(format=form), Path(mkdtemp(dir=folder)))
        table_of(source, IngestArguments([], "")).first_fault()


def any_lines_are_a_source_or_refused(folder, lines, has_header, form):
    folder = Path(mkdtemp(dir=folder))
    (folder / "lines").write_text(f"user,item\n{lines}" if has_header else lines, newline="")
    with suppress(WidenetError):
        ingest(folder / "lines", folder / "data", format=form, threads=1, skip_bad_lines=1)
    assert {path.name for path in folder.iterdir()} <= {"lines", "data"}


SOURCES = LINES, st.booleans(), st.sampled_from(FORMATS)
RULES = {
    a_changed_network_is_planned_or_refused: (2_000, changed(NETWORKS)),
    a_changed_training_is_read_or_refused: (1_000, changed([TRAINING])),
    a_changed_dsstne_network_is_translated_or_refused: (1_000, changed([DSSTNE])),
    any_text_is_a_document_or_refused: (
        1_500,
        st.text(st.sampled_from('{}[]",:0e-.tnulayers \\u\n\ufeff\0'), max_size=40),
    ),
    the_first_mistake_of_any_lines_is_found: (1_400, *SOURCES),
    any_lines_are_a_source_or_refused: (100, *SOURCES),
}
"""Rules, each with the number of examples in the long form, and what they are drawn from."""


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_in_examples_that_are_always_the_same(rule, share, tmp_path):
    number, *drawn = RULES[rule]
    always = settings(max_examples=number // share, derandomize=True, deadline=None, database=None)
    always(given(*drawn)(rule))(tmp_path)

"""Documents, data and machines that do not go together: the class of the error, its place and its option."""

import json
from dataclasses import replace

import pytest

from tests.mistakes import mistake
from tests.plan.test_layout import (
    ABOVE,
    LINEAR,
    PICTURE,
    PICTURES,
    SEQUENCES,
    SETS,
    SHARED,
    TAGS,
    bound,
    convolution,
    layers,
    pictured,
    pooling,
)
from tests.sequences import EMBEDDED, HISTORY, NEXT, attention, gru
from widenet.errors import CapacityError, DocumentError, FitError, OptionError
from widenet.plan.binding import bind, check_evaluation
from widenet.plan.layout import Job, Width, check_processes
from widenet.plan.machine import available_threads
from widenet.plan.memory import check_fits
from widenet.plan.numbers import bytes_of
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

ITEMS = {"name": "items", "kind": "input", "field": "items"}
OF_SETS = [
    (layers({"field": "item"}), 'layers[0].field ("in")'),
    (layers({"units": 29}), 'layers[0].units ("in")'),
    (layers({"field": "age", "units": 4}), 'layers[0].units ("in")'),
    (layers({"field": "age", "denoise": 0.5}), 'layers[0].denoise ("in")'),
    (layers({"field": "age", "popularity_damping": 1}), 'layers[0].popularity_damping ("in")'),
    (layers({"dropout": 0.5}), 'layers[0].dropout ("in")'),
    (layers(out={"field": "rated", "activation": "sigmoid"}), 'layers[2].loss ("out")'),
    (layers(out={"field": "shares", "activation": "sigmoid"}), 'layers[2].loss ("out")'),
    (layers(out={"field": "age", "activation": "sigmoid"}), 'layers[2].loss ("out")'),
    (layers(out={"field": "age", **LINEAR, "sample": "uniform"}), 'layers[2].sample ("out")'),
    (layers(out={"sample": {"kind": "popularity", "units": 31}}), 'layers[2].sample.units ("out")'),
    (layers(out={"source": ["in", "mid"]}), 'layers[2].source ("out")'),
    (
        layers({"field": "age"}, out={"field": "age", "neighbourhood": {}, **LINEAR}),
        'layers[2].neighbourhood ("out")',
    ),
    (
        [*layers()[:1], {"name": "out", "kind": "output", "field": "items", "cosine": {}}],
        'layers[1].cosine ("out")',
    ),
    (
        [
            *layers()[:1],
            {"name": "a", "kind": "output", "field": "items"},
            {"name": "b", "kind": "output", "field": "items", "source": "in", "weights": {"layer": "a"}},
        ],
        'layers[1].source ("a")',
    ),
    (layers(out={**SHARED, "field": "tags"}), 'layers[2].weights ("out")'),
    (layers(out={"weights": {"layer": "mid"}}), 'layers[2].weights ("out")'),
    (
        layers(
            {"field": "tags"},
            {"units": 7},
            {"field": "tags", "weights": {"layer": "deep", "transposed": True}},
            [{"name": "deep", "units": 7}],
        ),
        'layers[3].weights ("out")',
    ),
    (layers({}, {"split": True}), 'layers[1].split ("mid")'),
    (
        layers(
            more=[
                {"name": "a", "units": 5, "split": True},
                {"name": "b", "units": 5, "weights": {"layer": "a"}},
            ]
        ),
        'layers[2].split ("a")',
    ),
    (layers({}, {"frozen": True}, {"frozen": True}), 'layers[1].frozen ("mid")'),
    (layers({}, {"frozen": True, "described_by": "genre"}), 'layers[1].frozen ("mid")'),
    (layers({}, {"described_by": "tone"}), 'layers[1].described_by ("mid")'),
]
OF_SEQUENCES = [
    ([TAGS, gru(), {**NEXT, "field": "tags", "predict": "all"}], 'layers[1].source ("state")'),
    ([HISTORY, TAGS, gru(source=["history", "tags"]), NEXT], 'layers[2].source ("state")'),
    ([HISTORY, gru(), {**NEXT, "predict": "all"}], 'layers[2].predict ("out")'),
    ([HISTORY, gru(), {**NEXT, "field": "other"}], 'layers[2].predict ("out")'),
    ([TAGS, ABOVE, NEXT], 'layers[2].predict ("out")'),
    ([HISTORY, NEXT], 'layers[1].source ("out")'),
    ([{**HISTORY, "denoise": 0.5}, gru(), NEXT], 'layers[0].denoise ("history")'),
    ([{**HISTORY, "shape": [1, 40]}, gru(), NEXT], 'layers[0].shape ("history")'),
    (
        [{**TAGS, "last": 5}, ABOVE, {**NEXT, "field": "tags", "predict": "all"}],
        'layers[0].last ("tags")',
    ),
    ([*EMBEDDED, attention(heads=4), NEXT], 'layers[2].heads ("state")'),
    ([HISTORY, attention(heads=7), NEXT], 'layers[1].source ("state")'),
    (
        [TAGS, ABOVE, attention(), {**NEXT, "field": "tags", "predict": "all"}],
        'layers[2].source ("state")',
    ),
]
OF_PICTURES = [
    (pictured(PICTURE | {"shape": [2, 7, 5]}, convolution("c")), 'layers[0].shape ("in")'),
    (pictured(ITEMS | {"shape": [1, 29]}, {"name": "h", "units": 3}), 'layers[0].shape ("items")'),
    (pictured(ITEMS, convolution("c", kernel=[3])), 'layers[1].source ("c")'),
    (
        pictured(
            PICTURE,
            ITEMS,
            {"name": "h", "units": 29, "source": ["in", "items"]},
            {"name": "g", "units": 29, "skip": "items"},
        ),
        'layers[3].skip ("g")',
    ),
    (pictured(PICTURE, convolution("c"), {"name": "h", "units": 5, "skip": "in"}), 'layers[2].skip ("h")'),
    (
        pictured(
            PICTURE,
            convolution("c"),
            convolution("b", source="in", stride=2),
            convolution("d", source=["c", "b"]),
        ),
        'layers[3].source ("d")',
    ),
    (
        pictured(PICTURE, convolution("c"), pooling("maxout", source=["c", "in"])),
        'layers[2].source ("p")',
    ),
    (pictured(PICTURE, {"name": "h", "units": 5}, pooling("lrn")), 'layers[2].source ("p")'),
    (
        pictured(PICTURE, convolution("c"), convolution("d", weights={"layer": "c"})),
        'layers[2].weights ("d")',
    ),
    (
        pictured(PICTURE, convolution("c", dropout=0.1), convolution("d", split=True)),
        'layers[2].split ("d")',
    ),
    (pictured(PICTURE | {"shape": None}, convolution("c")), 'layers[1].source ("c")'),
    (pictured(PICTURE, convolution("c", kernel=[3])), 'layers[1].kernel ("c")'),
    (pictured(PICTURE, convolution("c", padding=[1])), 'layers[1].padding ("c")'),
    (pictured(PICTURE, convolution("c", kernel=8, padding="valid")), 'layers[1].kernel ("c")'),
]


@pytest.mark.parametrize(
    ("fields", "document", "place"),
    [
        (fields, *row)
        for fields, rows in ((SETS, OF_SETS), (SEQUENCES, OF_SEQUENCES), (PICTURES, OF_PICTURES))
        for row in rows
    ],
    ids=str,
)
def test_a_layer_that_does_not_fit_is_named_with_its_setting(fields, document, place):
    with mistake(FitError, place=f"network.json: {place}"):
        bound(document, fields)


@pytest.mark.parametrize("settings", [{"l2": 0.5}, {"optimizer": "adamw"}], ids=str)
def test_a_refusal_names_the_file_of_the_training(settings, tmp_path):
    (tmp_path / "b11.json").write_text(json.dumps(settings))
    network = NetworkSpec.of(
        {"layers": layers(middle={"described_by": "genre"}, more=[{"name": "last", "units": 4}])}
    )
    with mistake(FitError, place='layers[1].described_by ("mid")') as refused:
        bind(network, TrainingSpec.read(tmp_path / "b11.json"), SETS)
    assert str(tmp_path / "b11.json") in str(refused.value)


TWO = [{"name": name, "kind": "output", "field": name, "source": "taste"} for name in ("next", "tag")]


@pytest.mark.parametrize(
    ("evaluation", "outputs", "error", "place"),
    [
        ({}, TWO, FitError, "evaluation.output"),
        ({"output": "nex"}, TWO, FitError, "evaluation.output"),
        ({"metric": "recall@0"}, TWO[:1], DocumentError, "evaluation.metric"),
        ({"metric": "popularity@5"}, TWO[:1], DocumentError, "evaluation.metric"),
    ],
)
def test_an_evaluation_that_cannot_be_is_refused(evaluation, outputs, error, place):
    inputs = [{"name": "in", "kind": "input", "field": "next"}, {"name": "taste", "units": 2}]
    network = NetworkSpec.of({"layers": [*inputs, *outputs]})
    with mistake(error, place=f"training.json: {place}"):
        check_evaluation(network, TrainingSpec.of({"evaluation": evaluation}, "training.json"))


def test_a_job_that_no_memory_holds_is_refused():
    job = Job(bound(layers(middle={"units": 1000}), {"items": Width(10**7)}), device="cuda")
    for device, place in (("cuda", "memory of a device"), ("cpu", "memory of this machine")):
        with mistake(CapacityError, place=place):
            check_fits(replace(job, device=device), 10**9)
    with mistake(OptionError, option="processes"):
        check_processes(3, 4)


@pytest.mark.parametrize("text", ["", "GB", "-3GB", "0", "2 apples", "1e299EB", "nan", "1,5GB", "80"])
def test_what_is_no_amount_or_lacks_its_unit_is_refused(text):
    with mistake(OptionError, option="memory"):
        bytes_of(text, "memory")


@pytest.mark.parametrize("asked", ["0", "two", "1.5"])
def test_what_is_no_number_of_threads_is_refused(asked, monkeypatch):
    monkeypatch.setenv("WIDENET_THREADS", asked)
    with mistake(OptionError):
        available_threads()

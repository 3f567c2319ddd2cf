"""Layers: default sources, an order in which every layer follows its sources, and what is known of kinds."""

import ast
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widenet.errors import DocumentError
from widenet.spec.layers import Trunk
from widenet.spec.network import NetworkSpec
from widenet.spec.parts import BatchNormalization

IN = {"name": "in", "kind": "input", "field": "a"}


def hidden(name, *source):
    return {"name": name, "units": 2, **({"source": list(source)} if source else {})}


def output(name, *source, field="a"):
    return {"name": name, "kind": "output", "field": field, **({"source": list(source)} if source else {})}


def test_a_layer_without_source_takes_the_one_before_it():
    spec = NetworkSpec.of({"layers": [IN, hidden("h"), hidden("g"), output("o")]})
    assert [spec.sources(layer) for layer in spec.layers] == [(), ("in",), ("h",), ("g",)]


def test_a_source_may_be_one_name_or_a_list():
    one, many = ({"layers": [IN, hidden("h"), {**output("o"), "source": source}]} for source in ("h", ["h"]))
    assert NetworkSpec.of(one) == NetworkSpec.of(many)


def test_parts_are_found_in_document_order_and_fields_without_repeats():
    other = {"name": "other", "kind": "input", "field": "b"}
    spec = NetworkSpec.of(
        {
            "layers": [
                IN,
                other,
                hidden("h", "in", "other"),
                output("o", field="c"),
                output("p", "h", field="b"),
            ]
        }
    )
    assert [layer.name for layer in spec.inputs] == ["in", "other"]
    assert [layer.name for layer in spec.outputs] == ["o", "p"]
    assert spec.fields == ("a", "b", "c")
    assert spec.layer("h").units == 2


@settings(max_examples=50, deadline=None)
@given(st.data(), st.integers(1, 7))
def test_hidden_layers_come_after_their_sources_in_whatever_order_they_stand(data, count):
    names = [f"h{index}" for index in range(count)]
    layers = [
        hidden(name, *data.draw(st.sets(st.sampled_from(["in", *names[:index]]), min_size=1)))
        for index, name in enumerate(names)
    ]
    shuffled = data.draw(st.permutations(layers))
    spec = NetworkSpec.of({"layers": [*shuffled, IN, output("o", *names)]})
    order = ["in", *(layer.name for layer in spec.hidden)]
    assert sorted(order[1:]) == names
    for layer in spec.hidden:
        assert all(order.index(source) < order.index(layer.name) for source in spec.sources(layer))


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_cycle_of_any_length_is_shown_whole_and_alone(length):
    ring = [
        hidden(f"r{index}", f"r{(index - 1) % length}", *(["in"] if index == 0 else []))
        for index in range(length)
    ]
    with pytest.raises(DocumentError) as caught:
        NetworkSpec.of({"layers": [IN, hidden("after", "r0"), *ring, output("o", "after")]})
    shown = str(caught.value).split("got ")[1].removesuffix(".").split(" -> ")
    assert shown[0] == shown[-1]
    assert sorted(shown[1:]) == sorted(layer["name"] for layer in ring)
    assert all(
        (index + 1) % length == int(other[1:])
        for index, other in ((int(name[1:]), other) for name, other in pairwise(shown))
    )


def test_a_hidden_layer_without_a_source_gives_the_sum_of_what_it_skips():
    bare = {"name": "g", "units": 2, "source": [], "skip": "h"}
    spec = NetworkSpec.of({"layers": [IN, hidden("h"), bare, output("o")]})
    assert (spec.sources(spec.layer("g")), spec.sources(spec.layer("o"))) == ((), ("g",))


def test_a_skip_orders_layers_and_counts_as_a_use():
    layers = [{**hidden("h", "in"), "skip": "g"}, hidden("g", "in")]
    spec = NetworkSpec.of({"layers": [IN, *layers, output("o", "h")]})
    assert [layer.name for layer in spec.hidden] == ["g", "h"]


def test_an_input_that_shows_everything_may_feed_another_output():
    layers = [
        {**IN, "denoise": 0.5},
        hidden("h"),
        {**output("o"), "predict": "hidden"},
        {**IN, "name": "had"},
        hidden("g"),
        output("apart", "g", field="tags"),
    ]
    assert len(NetworkSpec.of({"layers": layers}).outputs) == 2


PICTURE = {"name": "in", "kind": "input", "field": "pixels", "shape": [1, 7, 6]}
OUT = {"name": "out", "kind": "output", "field": "label"}


def network(*layers):
    return {"layers": [PICTURE, *layers, OUT]}


def convolution(**settings):
    return {"name": "c", "kind": "convolution", "filters": 3, "kernel": 3, **settings}


def pooling(function="max", **settings):
    return {"name": "p", "kind": "pooling", "function": function, **settings}


@pytest.mark.parametrize(
    "layer",
    [
        convolution(),
        convolution(kernel=[3, 2], stride=[1, 2], padding=[0, 1], batch_normalization=True, skip="in"),
        convolution(padding="dsstne", batch_normalization={"momentum": 1}, skip=["in"]),
        pooling(kernel=2),
        pooling("average", kernel=[2, 2], stride=1, padding="valid"),
        pooling({"kind": "lrn", "n": 3}),
        {"name": "h", "units": 3, "batch_normalization": True},
    ],
    ids=str,
)
def test_a_document_reads_as_it_is_written_out(layer):
    document = NetworkSpec.of(network(layer))
    assert NetworkSpec.parse(document.to_json()) == document


def test_a_switch_is_the_normalization_of_the_defaults_or_none():
    found = [
        NetworkSpec.of(network(convolution(batch_normalization=switch))).hidden[0].batch_normalization
        for switch in (True, False, {})
    ]
    assert found == [BatchNormalization(), None, BatchNormalization()]


ROOT = Path(__file__).parents[2]
MODULES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "widenet").rglob("*.py"))
KINDS = {spec.__name__ for spec in get_args(Trunk)}
TELLERS = ("widenet/dsstne/", "widenet/frameworks/", "widenet/plan/")
"""Where each kind of layer between inputs and outputs is told apart: in the words of other programs, and by
what it needs.
"""


def told_apart(tree: ast.AST) -> list[str]:
    """The lines of a module that ask which kind a layer between inputs and outputs is."""
    asking = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.MatchClass)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"))
    ]
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in asking
        if any(isinstance(part, ast.Name) and part.id in KINDS for part in ast.walk(node))
    ]


def test_a_kind_of_layer_is_known_to_its_own_files_and_the_plan_alone():
    texts = {path: (ROOT / path).read_text("utf-8") for path in MODULES if not path.startswith(TELLERS)}
    named = {path: text for path, text in texts.items() if any(kind in text for kind in KINDS)}
    assert {path: lines for path, text in named.items() if (lines := told_apart(ast.parse(text)))} == {}

"""Wiring: default sources, and an order in which every layer follows its sources."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widenet.errors import DocumentError
from widenet.spec.network import NetworkSpec

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


@settings(max_examples=150, deadline=None)
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
    shown = str(caught.value).split("got ")[1].removesuffix(". Remove one source.").split(" -> ")
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
    for wrong in ({"skip": None}, {"weight_norm": 1.0}, {"weights": {"layer": "h"}}):
        with pytest.raises(DocumentError, match=r'layers\[2\].source may be empty only beside "skip"'):
            NetworkSpec.of({"layers": [IN, hidden("h"), bare | wrong, output("o")]})

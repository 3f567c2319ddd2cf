"""Layers: default sources, an order in which every layer follows its sources, and what is known of kinds."""

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


@pytest.mark.parametrize("length", [1, 3])
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

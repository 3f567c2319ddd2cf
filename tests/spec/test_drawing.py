"""A network's picture: every layer with what the document says of it, and its sizes where they are known."""

from tests.pages import Page
from widenet.spec.network import NetworkSpec, drawn

NETWORK = NetworkSpec.of(
    {
        "name": "<b>net</b>",
        "layers": [
            {"name": "picture", "kind": "input", "field": "pixels", "shape": [1, 4, 4]},
            {"name": "filters", "kind": "convolution", "filters": 3, "kernel": 2, "activation": "relu"},
            {"name": "largest", "kind": "pooling", "function": "max", "kernel": 2},
            {"name": "deep", "units": 12, "dropout": 0.25, "skip": "largest"},
            {"name": "next", "kind": "output", "field": "<script>", "cosine": {}, "bias": False},
        ],
    }
)


def test_every_layer_is_a_box_with_its_facts_and_its_size_where_it_is_known():
    page = Page(drawn(NETWORK))
    assert page.count("rect") == len(NETWORK.layers)
    assert {"relu", "hidden, 12 units", 'output of "<script>", auto units'} <= {*page.texts["text"]}
    assert dict(page.elements)["svg"]["aria-label"] == "The network <b>net</b>"
    said = Page(drawn(NETWORK, {"next": "7 units"}, {"deep": 1234})).texts["text"]
    assert {'output of "<script>", 7 units', "1,234 parameters"} <= {*said}

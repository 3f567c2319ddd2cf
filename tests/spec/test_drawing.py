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
            {
                "name": "next",
                "kind": "output",
                "field": "<script>",
                "loss": "cross_entropy",
                "cosine": {},
                "bias": False,
            },
        ],
    }
)


def test_every_layer_is_a_box_with_its_facts():
    page = Page(drawn(NETWORK))
    assert page.count("rect") == len(NETWORK.layers)
    said = page.texts["text"]
    for line in (
        "relu",
        "hidden, 12 units",
        'output of "<script>", auto units',
        "softmax, cross entropy",
    ):
        assert line in said
    assert dict(page.elements)["svg"]["aria-label"] == "The network <b>net</b>"

"""Every kind of mistake in a document gives one sentence with place, rule, value and remedy."""

import pytest

from widenet.errors import DocumentError
from widenet.spec.network import NetworkSpec

IN = {"name": "in", "kind": "input", "field": "items"}
H = {"name": "h", "units": 4}
OUT = {"name": "out", "kind": "output", "field": "items"}


def network(entry=(), hidden=(), output=(), more=()):
    return {"layers": [{**IN, **dict(entry)}, {**H, **dict(hidden)}, {**OUT, **dict(output)}, *more]}


FLOAT32 = "must be 0, or a number that a float32 can hold: of magnitude 1.2e-38 to 3.4e38"
ACTIVATIONS = (
    "sigmoid, tanh, relu, selu, softplus, softsign, linear, gelu, silu, softmax, relu_max, linear_max,"
    " leaky_relu, elu"
)
NETWORK_MISTAKES = [
    (5, " must be a JSON object with named fields; got 5."),
    ([], " must be a JSON object with named fields; got []."),
    ({}, ': layers is missing. Add "layers".'),
    ({"layers": []}, ": layers must be at least 1 long; got []."),
    ({"layers": {}}, ": layers must be a list; got {}."),
    ({"layers": [3]}, ": layers[0] must be an object with named fields; got 3."),
    ({"name": 3, **network()}, ": name must be text in quotes; got 3."),
    (
        network(
            more=[
                {"name": "state", "kind": "recurrent", "units": 4, "source": "h"},
                {"name": "again", "kind": "output", "field": "items", "weights": {"layer": "state"}},
            ]
        ),
        (
            ": layers[4].weights.layer must name another hidden or output layer; "
            'got "state", a recurrent layer, whose gates share their weights with nobody. Known: h, out.'
        ),
    ),
    (
        {"epochs": 3},
        (
            " is a training document and stands where the network document belongs. Give the network first,"
            " then the training."
        ),
    ),
    ({"layer": [], "optimizer": None}, ': layer is not a known field. Did you mean "layers"?'),
    ({"nam": "x", **network()}, ': nam is not a known field. Did you mean "name"?'),
    ({"zzz": 0, **network()}, ": zzz is not a known field. Known: name, shared_gradient, optimizer, layers."),
    (network({"fild": "x"}), ': layers[0].fild is not a known field. Did you mean "field"?'),
    (network({"denoice": 0.5}), ': layers[0].denoice is not a known field. Did you mean "denoise"?'),
    (
        network({}, {"activaton": "relu"}),
        ': layers[1].activaton is not a known field. Did you mean "activation"?',
    ),
    (network({}, {}, {"cosin": {}}), ': layers[2].cosin is not a known field. Did you mean "cosine"?'),
    (
        network({}, {}, {"cosine": {"temprature": 1}}),
        ': layers[2].cosine.temprature is not a known field. Did you mean "temperature"?',
    ),
    (
        network({}, {"activation": {"kind": "leaky_relu", "slop": 1}}),
        ': layers[1].activation.slop is not a known field. Did you mean "slope"?',
    ),
    (
        network({}, {"initializer": {"kind": "he", "scal": 1}}),
        ': layers[1].initializer.scal is not a known field. Did you mean "scale"?',
    ),
    (
        network({}, {}, {"loss": {"kind": "cross_entropy", "targts": "sum"}}),
        ': layers[2].loss.targts is not a known field. Did you mean "targets"?',
    ),
    (
        network({}, {"sparseness": {"targt": 0.1}}),
        ': layers[1].sparseness.targt is not a known field. Did you mean "target"?',
    ),
    (
        network({}, {"kind": "hiden"}),
        ': layers[1].kind must be a known name; got "hiden". Did you mean "hidden"?',
    ),
    (network({}, {"kind": None}), ": layers[1].kind must be a known name; got null."),
    (
        network({}, {"activation": "tahn"}),
        ': layers[1].activation must be a known name; got "tahn". Did you mean "tanh"?',
    ),
    (
        network({}, {"activation": {"kind": "tahn"}}),
        ': layers[1].activation.kind must be a known name; got "tahn". Did you mean "tanh"?',
    ),
    (
        network({}, {"activation": {"kind": 3}}),
        f": layers[1].activation.kind must be a known name; got 3. Known: {ACTIVATIONS}.",
    ),
    (network({}, {"activation": {"slope": 0.1}}), ': layers[1].activation.kind is missing. Add "kind".'),
    (
        network({}, {"activation": {"knd": "elu"}}),
        ': layers[1].activation.knd is not a known field. Did you mean "kind"?',
    ),
    (network({}, {"activation": 3}), ": layers[1].activation must be an object with named fields; got 3."),
    (network({}, {"units": "4"}), ': layers[1].units must be a whole number, without quotes; got "4".'),
    (network({}, {"units": 4.5}), ": layers[1].units must be a whole number; got 4.5."),
    (network({}, {"units": True}), ": layers[1].units must be a whole number; got true."),
    (
        network({}, {"units": 100.0}),
        ": layers[1].units must be a whole number, without a decimal point; got 100.0.",
    ),
    (network({"denoise": True}), ": layers[0].denoise must be a number; got true."),
    (network({}, {"units": 0}), ": layers[1].units must be at least 1; got 0."),
    (network({}, {"units": 2**40}), ": layers[1].units must be at most 2147483647; got 1099511627776."),
    (
        network({"units": "aut"}),
        ': layers[0].units must be a whole number, without quotes, or "auto"; got "aut".',
    ),
    (network({"denoise": 1}), ": layers[0].denoise must be less than 1.0; got 1."),
    (network({"denoise": "0.2"}), ': layers[0].denoise must be a number, without quotes; got "0.2".'),
    (
        network({"values": "used"}),
        ': layers[0].values must be one of use, ignore; got "used". Did you mean "use"?',
    ),
    (network({"name": ""}), ': layers[0].name must be at least 1 long; got "".'),
    (
        network({"name": "a/b"}),
        ': layers[0].name must be text without "/", "\\" and control characters; got "a/b".',
    ),
    (
        network({"name": "a" * 101}),
        f': layers[0].name must be at most 100 characters long; got "{"a" * 56}....',
    ),
    (
        network({"name": "\ud800"}),
        " must hold plain JSON values: unexpected end of hex escape at line 1 column 29.",
    ),
    (network({}, {"bias": 1}), ": layers[1].bias must be true or false; got 1."),
    (network({}, {"bias_start": float("nan")}), ": layers[1].bias_start must be a finite number; got NaN."),
    (
        network({}, {"bias_start": float("inf")}),
        ": layers[1].bias_start must be a finite number; got Infinity.",
    ),
    (
        network({}, {"weight_norm": float("inf")}),
        ": layers[1].weight_norm must be a finite number; got Infinity.",
    ),
    (
        network({}, {"source": []}),
        (
            ': layers[1].source may be empty only beside "skip", without "weights" and "weight_norm". Name a'
            " layer, or remove the key."
        ),
    ),
    (network({}, {"source": [3]}), ": layers[1].source[0] must be text in quotes; got 3."),
    (network({}, {"source": "inn"}), ': layers[1].source must name a layer; got "inn". Did you mean "in"?'),
    (network({}, {"source": ["in", "in"]}), ": layers[1].source must name each layer once; got in, in."),
    (
        network({}, {"source": "out"}),
        ': layers[1].source must not be an output layer; got "out". Take its source instead.',
    ),
    (network({}, {"source": "h"}), ": layers must not feed themselves; got h -> h. Remove one source."),
    (
        network(
            {},
            {"source": ["in", "g"]},
            {},
            [{"name": "g", "units": 2, "source": ["f"]}, {"name": "f", "units": 2, "source": "h"}],
        ),
        ": layers must not feed themselves; got h -> f -> g -> h. Remove one source.",
    ),
    (
        network({}, {}, {}, [{"name": "g", "units": 2}]),
        ': layers[3].source must not be an output layer; got "out". Name the layer\'s "source".',
    ),
    (
        {"layers": [H, IN, OUT]},
        ': layers[0] ("h") has no layer before it. Put an input layer first, or name its "source".',
    ),
    (network({}, {"name": "in"}), ': layers[1].name must be unique; "in" is also layers[0]. Rename one.'),
    (
        network({}, {"name": "out bias"}),
        ': layers[1].name must not be "out bias" beside "out", whose biases are called so. Rename one.',
    ),
    ({"layers": [IN, H]}, ': layers must have an output layer. Add one with "kind": "output".'),
    (
        network({}, {"source": "in"}, {"source": "in"}),
        ': layers[1] ("h") feeds no other layer. Name it as a "source", or remove it.',
    ),
    (
        {"layers": [IN, {**IN, "name": "other"}, H, OUT]},
        ': layers[0] ("in") feeds no other layer. Name it as a "source", or remove it.',
    ),
    (
        network({}, {}, {"predict": "hidden"}),
        ': layers[2].predict "hidden" needs one input layer of the field "items" with "denoise" above 0.',
    ),
    (
        network({"field": "other", "denoise": 0.5}, {}, {"predict": "hidden"}),
        ': layers[2].predict "hidden" needs one input layer of the field "items" with "denoise" above 0.',
    ),
    (
        {
            "layers": [
                {**IN, "denoise": 0.5},
                {**IN, "name": "had"},
                {**H, "source": ["in", "had"]},
                {**OUT, "predict": "hidden"},
            ]
        },
        (
            ': layers[3].predict "hidden" must not be fed by an input that shows all of "items"; got "had". '
            'Take it from the sources, or set "predict": "all".'
        ),
    ),
    (network({}, {"bias_start": 1e300}), f": layers[1].bias_start {FLOAT32}; got 1e+300."),
    (network({}, {"bias_start": -1e-40}), f": layers[1].bias_start {FLOAT32}; got -1e-40."),
    (
        network({}, {"initializer": {"kind": "constant", "value": 1e300}}),
        f": layers[1].initializer.value {FLOAT32}; got 1e+300.",
    ),
    (network({}, {}, {"loss_weight": 1e300}), f": layers[2].loss_weight {FLOAT32}; got 1e+300."),
    (
        network({}, {"weight_norm": 1e300}),
        f": layers[1].weight_norm {FLOAT32}; got 1e+300.",
    ),
    (
        network({}, {}, {"cosine": {"temperature": 1e-300}}),
        f": layers[2].cosine.temperature {FLOAT32}; got 1e-300.",
    ),
    (
        network({}, {}, {"loss": "hinge"}),
        ': layers[2].loss "hinge" needs an activation of single units, such as "linear"; got "softmax".',
    ),
    (
        network({}, {}, {"loss": "cosine_contrastive", "activation": "relu_max"}),
        (
            ': layers[2].loss "cosine_contrastive" needs an activation of single units, such as "linear"; got'
            ' "relu_max".'
        ),
    ),
    (
        network({}, {}, {"activation": "tanh"}),
        ': layers[2].loss "cross_entropy" needs the activation "sigmoid" or "softmax"; got "tanh".',
    ),
    (
        network({}, {}, {"loss": "cosine_contrastive", "activation": "linear", "cosine": {}}),
        (
            ': layers[2].loss "cosine_contrastive" compares cosines with 1 and a margin. Set "cosine":'
            ' {"temperature": 1}.'
        ),
    ),
    (
        network({}, {}, {"loss": {"kind": "cross_entropy", "targets": "sum"}, "activation": "sigmoid"}),
        ': layers[2].loss.targets "sum" belongs to the activation "softmax"; got "sigmoid". Remove it.',
    ),
    (
        network({}, {}, {"sample": "popular"}),
        ': layers[2].sample must be a known name; got "popular". Did you mean "popularity"?',
    ),
    (
        network({}, {}, {"sample": {"kind": "uniform", "units": 0}}),
        ": layers[2].sample.units must be at least 1; got 0.",
    ),
    (
        network({}, {}, {"sample": {"kind": "uniform", "power": 1}}),
        ": layers[2].sample.power is not a known field. Known: kind, units.",
    ),
    (
        network({}, {}, {"sample": {"kind": "popularity", "power": 0}}),
        ": layers[2].sample.power must be more than 0.0; got 0.",
    ),
    (
        network({}, {}, {"sample": "uniform", "loss": "l2"}),
        (
            ': layers[2].sample needs a cross-entropy, or an activation of single units; got the loss "l2"'
            ' under "softmax". Remove "sample" or change one.'
        ),
    ),
    (
        network({}, {}, {"sample": "uniform", "loss": "l1", "activation": "linear_max"}),
        (
            ': layers[2].sample needs a cross-entropy, or an activation of single units; got the loss "l1"'
            ' under "linear_max". Remove "sample" or change one.'
        ),
    ),
    (
        network({}, {}, {"others": "ignore"}),
        ': layers[2].others "ignore" needs an activation of single units, such as "sigmoid"; got "softmax".',
    ),
    (
        network({}, {}, {"others": "ignore", "sample": "uniform", "loss": "l2", "activation": "linear"}),
        ': layers[2].others "ignore" leaves nothing to "sample". Remove one.',
    ),
    (
        network({}, {"initializer": {"kind": "uniform", "limit": 0.1, "low": 0.2}}),
        ": layers[1].initializer: low must be at most limit; got 0.2 and 0.1. Exchange them.",
    ),
    (
        network({}, {}, {"sample": "uniform", "weight_norm": 2.5}),
        (
            ': layers[2].weight_norm must be unset beside "sample", which leaves most rows alone; got 2.5.'
            " Remove one."
        ),
    ),
    (
        network({}, {"activation": "relu", "sparseness": {}}),
        ': layers[1].sparseness needs activations between 0 and 1; got "relu". Use "sigmoid".',
    ),
    (network({}, {}, {"weights": {}}), ': layers[2].weights.layer is missing. Add "layer".'),
    (
        network({}, {}, {"weights": [{"layr": "h"}]}),
        ': layers[2].weights[0].layr is not a known field. Did you mean "layer"?',
    ),
    (network({}, {}, {"weights": [{"from": "h"}]}), ': layers[2].weights[0].layer is missing. Add "layer".'),
    (
        {"layers": [{"name": "h", "colour": 1, "unit": 3}]},
        ': layers[0].unit is not a known field. Did you mean "units"?',
    ),
    (network({}, {}, {"weights": "h"}), ': layers[2].weights must be an object with named fields; got "h".'),
    (
        network({}, {}, {"weights": [{"layer": "h"}, {}]}),
        ': layers[2].weights[1].layer is missing. Add "layer".',
    ),
    (
        network({}, {}, {"weights": [{"layer": "h", "transposed": True}] * 2}),
        ': layers[2].weights must serve each source of "out" once; got two for "h". Remove one.',
    ),
    (
        network({}, {}, {"weights": {"layer": "H"}}),
        ': layers[2].weights.layer must name another hidden or output layer; got "H". Did you mean "h"?',
    ),
    (
        network({}, {}, {"weights": {"layer": "in"}}),
        ': layers[2].weights.layer must name another hidden or output layer; got "in". Known: h.',
    ),
    (
        network({}, {}, {"weights": {"layer": "out"}}),
        ': layers[2].weights.layer must name another hidden or output layer; got "out". Known: h.',
    ),
    (
        network({}, {"weights": {"layer": "out"}}, {"weights": {"layer": "h"}}),
        ': layers[1].weights.layer must own its weights; "out" shares its own. Name "h".',
    ),
    (
        network({}, {}, {"weights": {"layer": "h", "transposed": True, "source": "in"}}),
        ': layers[2].weights.source must be a source of "out"; got "in". Known: h.',
    ),
    (
        network({}, {}, {"weights": {"layer": "h", "transposed": True, "layer_source": "inn"}}),
        ': layers[2].weights.layer_source must be a source of "h"; got "inn". Did you mean "in"?',
    ),
    (
        {
            "layers": [
                IN,
                {**IN, "name": "two"},
                {**H, "source": ["in", "two"]},
                {**OUT, "weights": {"layer": "h"}},
            ]
        },
        ': layers[3].weights.layer_source is missing: "h" has several sources. Name one of in, two.',
    ),
    (
        {
            "layers": [
                IN,
                H,
                {"name": "g", "units": 2, "source": "in"},
                {**OUT, "source": ["h", "g"], "weights": {"layer": "h", "source": "h"}},
            ]
        },
        ': layers[3].weights: an output layer that shares weights must have one source; "out" has several.',
    ),
    (
        network({}, {}, {"weights": {"layer": "h", "transposed": True}, "weight_norm": 1.0}),
        ': layers[2].weight_norm belongs to the layer that owns the weights. Move it to "h".',
    ),
]


@pytest.mark.parametrize(
    ("values", "message"), NETWORK_MISTAKES, ids=[message[:70] for _, message in NETWORK_MISTAKES]
)
def test_a_mistake_in_a_network_gives_one_sentence(values, message):
    with pytest.raises(DocumentError) as caught:
        NetworkSpec.of(values, "network.json")
    assert str(caught.value) == f"network.json{message}"


def test_an_input_that_shows_everything_may_feed_another_output():
    apart = {"name": "apart", "kind": "output", "field": "tags", "source": "g"}
    layers = [
        {**IN, "denoise": 0.5},
        H,
        {**OUT, "predict": "hidden"},
        {**IN, "name": "had"},
        {"name": "g", "units": 2},
        apart,
    ]
    assert len(NetworkSpec.of({"layers": layers}).outputs) == 2

"""DSSTNE's network documents: every key of its reference, said in this project's words or refused as
there.
"""

import json

import pytest

from tests.mistakes import mistake
from tests.movielens import SAMPLE
from widenet.dsstne.spec.network import is_dsstne, translation, without_comments
from widenet.errors import DocumentError
from widenet.spec.network import NetworkSpec

INPUT = {"Kind": "Input", "Name": "In", "N": "auto", "DataSet": "gl_input", "Sparse": True}
OUTPUT = {"Kind": "Output", "Name": "Out", "N": "auto", "DataSet": "gl_output", "Activation": "Sigmoid"}
HALF_XAVIER = {"kind": "xavier", "scale": 0.5}


def config(*hidden, first=None, last=None, **network):
    layers = [{**INPUT, **(first or {})}, *hidden, {**OUTPUT, **(last or {})}]
    return {"Version": 0.9, "Name": "AE", "Layers": layers, **network}


def hidden(**keys):
    return {"Kind": "Hidden", "Name": "H", "N": 128, **keys}


def spoken(document):
    """The translation's network, which must also be a document of this project."""
    found = translation(document, "config.json")
    NetworkSpec.of(found.network)
    return found


def layers_of(document):
    return spoken(document).network["layers"]


def test_the_sample_of_movielens_says_what_dsstne_makes_of_it():
    found = spoken(SAMPLE)
    margins = {"one_target": 1.0, "zero_target": 0.0, "one_scale": 1.0, "zero_scale": 1.0}
    assert found.network == {
        "name": "AE",
        "optimizer": {"floor": 1e-9, "step_offset": 1},
        "layers": [
            {
                "name": "Input",
                "kind": "input",
                "field": "gl_input",
                "units": "auto",
                "denoise": 0.2,
                "denoise_rescale": True,
            },
            {
                "name": "Hidden",
                "units": 128,
                "activation": "sigmoid",
                "initializer": HALF_XAVIER,
                "sparseness": {"after_dropout": True, "pull_outside": True, "target": 0.5, "weight": 2.0},
            },
            {
                "name": "Output",
                "kind": "output",
                "field": "gl_output",
                "units": "auto",
                "activation": "sigmoid",
                "loss": {"kind": "scaled_marginal_cross_entropy", **margins},
                "values": "ignore",
                "initializer": HALF_XAVIER,
            },
        ],
    }
    assert found.training == {"shuffle": False}
    assert found.notes == ()


def changed_case(values, change):
    if isinstance(values, dict):
        return {change(key): changed_case(value, change) for key, value in values.items()}
    return [changed_case(value, change) for value in values] if isinstance(values, list) else values


def test_limits_shares_and_sources_are_taken_over():
    tied = {"InputLayer": "H", "SourceInputLayer": "In", "SourceOutputLayer": "H", "Transposed": True}
    document = config(
        hidden(WeightNorm=2, DeltaNorm=3, pDropout=0.5),
        last={"SharedWeights": [tied], "Source": "H", "DeltaNorm": 1},
    )
    found = layers_of(document)
    assert (found[1]["weight_norm"], found[1]["delta_norm"], found[1]["dropout"]) == (2.0, 3.0, 0.5)
    assert found[2]["weights"] == {"layer": "H", "layer_source": "In", "source": "H", "transposed": True}
    assert (found[2]["source"], found[2]["delta_norm"]) == ("H", 1.0)
    plain = {"SourceInputLayer": "In", "SourceOutputLayer": "H"}
    found = layers_of(
        config(
            hidden(),
            hidden(Name="G", SharedWeights=[tied, {**plain, "InputLayer": "In"}], Source=["H", "In"]),
        )
    )
    assert [share["source"] for share in found[2]["weights"]] == ["H", "In"]
    several = [hidden(Name=f"H{n}", N=4, Source="In") for n in range(6)]
    wide = layers_of(config(*several, hidden(Name="All", Source=[f"H{n}" for n in range(6)])))
    assert wide[-2]["source"] == [f"H{n}" for n in range(6)]


def test_penalty_and_denoising_act_where_a_layer_is_sparse_and_the_network_has_them():
    penalty = {"SparsenessPenalty": {"p": 0.2, "beta": 3}}
    assert "sparseness" not in layers_of(config(hidden(), **penalty))[1]
    form = {"after_dropout": True, "pull_outside": True}
    found = layers_of(config(hidden(Sparse=True), **penalty))
    assert found[1]["sparseness"] == {"target": 0.2, "weight": 3.0, **form}
    own = hidden(Sparse=True, SparsenessPenalty={"p": 0.4})
    assert layers_of(config(own, **penalty))[1]["sparseness"] == {"target": 0.4, "weight": 3.0, **form}
    alone = spoken(config(own))
    assert "sparseness" not in alone.network["layers"][1]
    assert alone.notes == ()
    assert "denoise" not in layers_of(config(first={"Sparse": False}, Denoising={"p": 0.2}))[0]
    assert layers_of(config(hidden(Sparse=True, Activation="Relu"), **penalty))[1]["activation"] == "relu"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (config(), True),
        (changed_case(config(), str.upper), True),
        ({"Layers": {"dataset": "a"}}, True),
        ({"layers": [{"name": "in", "kind": "input", "field": "a"}]}, False),
        ({"layers": [{"name": "in", "kind": "input", "field": "a", "dataset": "b"}]}, False),
        ({"Layers": [{"Kind": "Hidden"}]}, False),
        ({"layers": 3}, False),
        ({}, False),
        ([], False),
    ],
)
def test_a_document_is_dsstnes_where_a_layer_has_a_data_set_and_none_a_field(values, expected):
    assert is_dsstne(values) is expected


def test_comments_go_and_what_looks_like_one_in_text_stays():
    text = '{"Name": "a // b /* c */ \\" // d", // e\n /* f\n g */ "Layers": []}'
    assert json.loads(without_comments(text)) == {"Name": 'a // b /* c */ " // d', "Layers": []}
    assert without_comments(text).count("\n") == text.count("\n")


def test_a_file_with_comments_is_read_as_it_is(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("// DSSTNE\n" + json.dumps(config(hidden())), "utf-8")
    network = NetworkSpec.read(path)
    assert network == NetworkSpec.of(config(hidden()))
    assert network.where == f"{path}, translated"
    assert NetworkSpec.parse(network.to_json()) == network
    path.write_text("// DSSTNE\n" + json.dumps(config())[:-3], "utf-8")
    with mistake(DocumentError, place="config.json", line=2):
        NetworkSpec.read(path)

"""What DSSTNE's documents say of a network as a whole."""

from widenet.dsstne.spec.network import translation

LAYERS = [{"Name": "In", "N": 5, "DataSet": "a"}, {"Name": "Out", "N": 3, "DataSet": "b"}]
BOTH = ("ScaledMarginalCrossEntropy", "DataScaledMarginalCrossEntropy")


def test_both_objects_of_margins_are_merged_and_the_one_without_data_comes_last():
    first, second = {"oneTarget": 0.8, "zeroScale": 0.3}, {"oneTarget": 0.7, "oneScale": 2}
    found = translation(
        {"Layers": LAYERS, "ErrorFunction": BOTH[0], BOTH[0]: first, BOTH[1]: second}
    ).network["layers"][-1]["loss"]
    expected = {"one_target": 0.8, "zero_target": 0.1, "one_scale": 2.0, "zero_scale": 0.3}
    assert found == {"kind": "scaled_marginal_cross_entropy", **expected}


def test_both_objects_of_local_response_normalization_are_merged():
    pooled = [LAYERS[0] | {"N": [4, 4, 2]}, {"Type": "Pooling", "Function": "LRN"}, LAYERS[1]]
    numbers = {"LRN": {"k": 1, "n": 4}, "LocalResponseNormalization": {"k": 3, "alpha": 0.5}}
    found = translation({"Layers": pooled, **numbers}).network["layers"][1]["function"]
    assert found == {"kind": "lrn", "k": 3.0, "n": 4, "alpha": 0.5, "beta": 0.75}

"""Documents are compared by places: only those that differ remain, with their values."""

from widenet.report.differences import differing


def test_only_the_values_that_differ_remain_under_dotted_paths():
    first = {"epochs": 1, "optimizer": {"kind": "adam", "rate": 0.1}, "layers": [{"name": "a", "units": 2}]}
    second = {"epochs": 1, "optimizer": {"kind": "adam", "rate": 0.2}, "layers": [{"name": "a", "units": 3}]}
    assert differing([first, second]) == [
        {"optimizer.rate": 0.1, "layers[a].units": 2},
        {"optimizer.rate": 0.2, "layers[a].units": 3},
    ]
    assert differing([first, first]) == [{}, {}]
    assert differing([]) == []


def test_a_place_that_one_document_lacks_differs():
    assert differing([{"a": None, "b": [1, 2]}, {"b": [1, 2]}]) == [{"a": None}, {}]
    assert differing([{"a": 1}, {"a": True}]) == [{"a": 1}, {"a": True}]

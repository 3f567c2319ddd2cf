"""DSSTNE's NetCDF data become a dataset that says the same."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.dsstne.files import dense_set, sparse_set
from widenet.data.contents import verify
from widenet.data.dataset import Dataset
from widenet.dsstne import data_set
from widenet.dsstne.data import import_data, is_listed_only
from widenet.errors import CapacityError, DataError, OptionError

ROWS = [[3, 1], [], [7, 0, 2]]
VALUES = [[3.5, -1.0], [], [0.25, 2.0, 1.0]]


def imported(path, tmp_path, **options):
    import_data([path] if isinstance(path, Path) else path, tmp_path / "data", **options)
    dataset = Dataset.open(tmp_path / "data")
    verify(dataset.path, dataset.manifest)
    return dataset


def dense_of(dataset, field, part="train"):
    width = dataset.field(field).width
    return dataset.sparse(field, slice(0, None), part).to_dense(width).numpy()


def one_hot(rows, values=None, width=8):
    dense = np.zeros((len(rows), width), np.float32)
    for number, row in enumerate(rows):
        for place, index in enumerate(row):
            dense[number, index] += 1 if values is None else values[number][place]
    return dense


@pytest.mark.parametrize("starts", ["u4", "u8"])
@pytest.mark.parametrize("values", [None, VALUES])
def test_a_sparse_set_becomes_a_sparse_field(netcdf, tmp_path, values, starts):
    dataset = imported(netcdf("x.nc", sparse_set(0, "items", ROWS, values, starts=starts)), tmp_path)
    assert dataset.field("items").has_values == (values is not None)
    assert np.array_equal(dense_of(dataset, "items"), one_hot(ROWS, values))
    assert dataset.ids(slice(0, None)) == ["0", "1", "2"]
    assert dataset.vocabulary("items").ids([0, 7]) == ["0", "7"]
    assert dataset.vocabulary("items").counts.tolist() == [1, 1, 1, 1, 0, 0, 0, 1]
    assert dataset.manifest.name == "x"


@pytest.mark.parametrize(
    "data_type", ["UInt", "Int", "LLInt", "ULLInt", "Float", "Double", "RGB8", "RGB16", "UChar", "Char"]
)
def test_every_type_of_data_is_read(netcdf, tmp_path, data_type):
    values = [[100, 1], [], [7, 0, 9]]
    sets = (
        sparse_set(0, "items", ROWS, values, data_type=data_type),
        dense_set(1, "marks", [[100, 1], [5, 7], [0, 3]], data_type=data_type, sides=(2,)),
    )
    dataset = imported(netcdf("x.nc", *sets), tmp_path)
    divisor, shift = {"RGB8": (256, 0.5), "RGB16": (65536, 0.5), "UChar": (256, 0.5), "Char": (128, 0)}.get(
        data_type, (1, 0)
    )
    assert np.array_equal(dense_of(dataset, "items"), one_hot(ROWS, values))
    assert np.array_equal(
        dataset.dense("marks", slice(0, None)).numpy(),
        np.array([[100, 1], [5, 7], [0, 3]], "f4") / divisor - shift,
    )


def test_numbers_of_8_bits_mean_something_else_as_targets(netcdf, tmp_path):
    sets = [
        dense_set(n, name, [[0, 128], [255, 1]], data_type="UChar", sides=(2,))
        for n, name in enumerate(["pixels", "labels"])
    ]
    dataset = imported(netcdf("x.nc", *sets), tmp_path, targets=["labels"])
    assert dataset.dense("pixels", slice(0, None)).tolist() == [[-0.5, 0.0], [255 / 256 - 0.5, 1 / 256 - 0.5]]
    assert dataset.dense("labels", slice(0, None)).tolist() == [[0.0, 0.5], [255 / 256, 1 / 256]]


@pytest.mark.parametrize(
    ("indices", "values", "rule"),
    [
        ([[1, 2], [5]], [[1.0, 1e300], [2.0]], "must hold finite numbers of float32; example 0 has 1e+300"),
        (
            [[3], [5, 6, 5]],
            [[1.0], [3e38, 1.0, 3e38]],
            "must hold numbers whose sum is finite where an index repeats; example 1 has inf",
        ),
    ],
)
def test_numbers_too_large_for_float32_are_named(indices, values, rule, netcdf, tmp_path):
    path = netcdf("x.nc", sparse_set(0, "items", indices, values, data_type="Double"))
    with pytest.raises(DataError, match=re.escape(f"sparseData0 {rule}")):
        import_data([path], tmp_path / "data")


def test_a_dense_boolean_set_becomes_one_feature_an_example(netcdf, tmp_path):
    dataset = imported(
        netcdf("x.nc", dense_set(0, "class", [2, 0, 9], data_type="UInt", sides=(10,), flags=["Boolean"])),
        tmp_path,
    )
    assert np.array_equal(dense_of(dataset, "class"), one_hot([[2], [0], [9]], width=10))


@pytest.mark.parametrize("sides", [(24,), (6, 4), (4, 3, 2)])
def test_sides_are_laid_flat_with_x_fastest(netcdf, tmp_path, sides):
    image = np.arange(48, dtype=np.float32).reshape(2, *sides[::-1])
    path = netcdf(
        "x.nc",
        dense_set(0, "image", image, sides=sides, kind=1),
        sparse_set(1, "lit", [[23], [1]], sides=sides),
    )
    dataset = imported(path, tmp_path)
    assert np.array_equal(dataset.dense("image", slice(0, None)).numpy().reshape(image.shape), image)
    assert dataset.field("lit").width == 24
    assert dataset.manifest.source["dsstne"]["image"]["dimensions"] == list(sides)
    assert dataset.manifest.source["dsstne"]["image"]["kind"] == "Image"


def test_indexed_examples_share_rows(netcdf, tmp_path):
    at = {"index0": ("u4", "allDim", [2, 0, 2, 1]), "index1": ("u4", "allDim", [1, 2, 0, 0])}
    size = {
        "allDim": 4,
        "examplesDim0": 4,
        "uniqueExamplesDim0": 3,
        "examplesDim1": 4,
        "uniqueExamplesDim1": 3,
    }
    sets = (
        sparse_set(0, "items", ROWS, VALUES, flags=["Indexed"]),
        dense_set(1, "age", [[1], [2], [3]], sides=(1,), flags=["Indexed"]),
    )
    dataset = imported(netcdf("x.nc", *sets, dimensions=size, variables=at), tmp_path)
    assert np.array_equal(dense_of(dataset, "items"), one_hot(ROWS, VALUES)[[2, 0, 2, 1]])
    assert dataset.dense("age", slice(0, None)).tolist() == [[2], [3], [1], [1]]


def test_rows_may_lie_anywhere_in_a_file_and_blocks_do_not_show(netcdf, tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    rows = [sorted(rng.choice(5000, size=rng.integers(0, 40), replace=False).tolist()) for _ in range(60)]
    attributes, dimensions, variables = sparse_set(0, "items", rows, sides=(5000,))
    order = rng.permutation(60)
    shuffled, ends = (
        sparse_set(0, "items", [rows[n] for n in order], sides=(5000,))[2],
        np.empty(60, np.int64),
    )
    starts = np.empty(60, np.int64)
    starts[order], ends[order] = shuffled["sparseStart0"][2], shuffled["sparseEnd0"][2]
    variables |= {
        "sparseIndex0": shuffled["sparseIndex0"],
        "sparseStart0": ("u8", "uniqueExamplesDim0", starts),
        "sparseEnd0": ("u8", "uniqueExamplesDim0", ends),
    }
    path = netcdf("x.nc", (attributes, dimensions, variables))
    whole = import_data([path], tmp_path / "whole")
    monkeypatch.setattr(data_set, "NUMBERS_PER_BLOCK", 50)
    monkeypatch.setattr(data_set, "_NARROW_GAP", 3)
    pieces = import_data([path], tmp_path / "pieces")
    assert whole.files == pieces.files
    assert dense_of(Dataset.open(tmp_path / "pieces"), "items").sum() == sum(map(len, rows))
    assert np.array_equal(dense_of(Dataset.open(tmp_path / "whole"), "items"), one_hot(rows, width=5000))


def test_repeated_indices_add_up_their_values_and_are_counted(netcdf, tmp_path):
    rows, values = [[5, 2, 5], [1], [4, 4, 4]], [[1.0, 2.0, 0.5], [1.0], [1.0, 2.0, 4.0]]
    path = netcdf("x.nc", sparse_set(0, "items", rows, values), sparse_set(1, "plain", rows))
    dataset = imported(path, tmp_path)
    assert np.array_equal(dense_of(dataset, "items"), one_hot(rows, values))
    assert np.array_equal(dense_of(dataset, "plain"), np.minimum(one_hot(rows), 1))
    assert dataset.manifest.source["repeated_indices_merged"] == 6


def test_example_weights_are_those_that_the_sets_agree_on(netcdf, tmp_path):
    weight = {f"dataWeight{n}": ("f4", f"examplesDim{n}", [1.0, 0.5, 2.0]) for n in (0, 1)}
    sets = [sparse_set(n, name, ROWS, flags=["Weighted"]) for n, name in enumerate(["input", "output"])]
    assert imported(netcdf("x.nc", *sets, variables=weight), tmp_path).weights(slice(0, None)).tolist() == [
        1.0,
        0.5,
        2.0,
    ]
    weight["dataWeight1"] = ("f4", "examplesDim1", [1.0, 0.5, 3.0])
    with pytest.raises(
        DataError, match=r"data set 'output': must weigh every example as 'input' does, .* example 2 differs"
    ):
        import_data([netcdf("y.nc", *sets, variables=weight)], tmp_path / "other")


def test_sets_of_several_files_become_fields_of_one_dataset(netcdf, tmp_path):
    paths = [
        netcdf("in.nc", sparse_set(0, "input", ROWS)),
        netcdf("out.nc", sparse_set(0, "output", ROWS, VALUES, flags=["SparseIgnoreZero"])),
    ]
    dataset = imported(paths, tmp_path)
    assert list(dataset.fields) == ["input", "output"]
    assert [is_listed_only(dataset.manifest, name) for name in ("input", "output", "other")] == [
        False,
        True,
        False,
    ]
    assert dataset.manifest.source["dsstne"]["output"]["attributes"] == ["SPARSE", "SPARSE_IGNORE_ZERO"]


def test_an_earlier_dataset_is_replaced_where_one_says_so_and_stays_after_a_mistake(netcdf, tmp_path):
    files = [netcdf(f"{name}.nc", sparse_set(0, name, ROWS)) for name in ("first", "second")]
    broken = netcdf("broken.nc", sparse_set(0, "third", ROWS), without=["sparseIndex0"])
    imported(files[0], tmp_path)
    with pytest.raises(DataError, match=r"already exists\. Replace it with `overwrite=True`"):
        imported(files[1], tmp_path)
    with pytest.raises(DataError):
        imported(broken, tmp_path, overwrite=True)
    assert list(Dataset.open(tmp_path / "data").fields) == ["first"]
    assert list(imported(files[1], tmp_path, overwrite=True).fields) == ["second"]


def test_index_files_name_features_and_examples_and_take_the_padding_off(netcdf, tmp_path):
    (tmp_path / "features").write_text("c\t2\na\t0\nd\t3\nb\t1\n")
    (tmp_path / "samples").write_text("u2\t1\nu1\t0\nu3\t2\n")
    path = netcdf("x.nc", sparse_set(0, "items", [[3, 1], [], [0]], sides=(128,)))
    dataset = imported(path, tmp_path, features=tmp_path / "features", samples=tmp_path / "samples")
    assert dataset.field("items").width == 4
    assert dataset.vocabulary("items").ids([0, 1, 2, 3]) == ["a", "b", "c", "d"]
    assert dataset.ids(slice(0, None)) == ["u1", "u2", "u3"]


def test_names_within_the_file_are_taken_too(netcdf, tmp_path):
    names = {
        "indToFeature0": ("text", "namesDim", ["a", "b"]),
        "samples": ("text", "samplesDim", ["x", "y", "z"]),
    }
    path = netcdf(
        "x.nc",
        sparse_set(0, "items", [[1], [], [0]]),
        dimensions={"namesDim": 2, "samplesDim": 3},
        variables=names,
    )
    dataset = imported(path, tmp_path)
    assert dataset.vocabulary("items").ids([0, 1]) == ["a", "b"]
    assert dataset.ids(slice(0, None)) == ["x", "y", "z"]


def test_sets_named_as_parts_become_parts(netcdf, tmp_path):
    path = netcdf("x.nc", sparse_set(0, "items.heldout", [[1], [], [2]]), sparse_set(1, "items", ROWS))
    dataset = imported(path, tmp_path)
    assert dataset.field("items").parts == ("train", "heldout")
    assert np.array_equal(dense_of(dataset, "items", "heldout"), one_hot([[1], [], [2]]))


def bad(**changes):
    return {"sets": [sparse_set(0, "items", ROWS, VALUES)], **changes}


def column(name, values, letter="u4", dimension="uniqueExamplesDim0"):
    return {"variables": {f"{name}0": (letter, dimension, values)}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (bad(without=["datasets"]),
         "attribute 'datasets' must be a whole number of at least 1; it is missing."),
        (bad(without=["name0"]), "attribute 'name0' must be a text; it is missing."),
        (bad(without=["dataType0"]),
         "attribute 'dataType0' must be a whole number of at least 0; it is missing."),
        (bad(attributes={"name0": 3}), "attribute 'name0' must be a text; got 3."),
        (bad(attributes={"width0": 0}), "attribute 'width0' must be a whole number of at least 1; got 0."),
        (bad(attributes={"dataType0": 12}), "data set 'items': dataType0 must be one of 0 UInt, "),
        (bad(attributes={"dataType0": 10}), "7 RGB16, 8 UChar, 9 Char; got 10."),
        (bad(attributes={"kind0": 3}), "kind0 must be 0 to 2; got 3."),
        (bad(attributes={"attributes0": 256}), "attributes0 must be below 256; got 256."),
        (bad(attributes={"dimensions0": 4}), "dimensions0 must be 1 to 3; got 4."),
        (bad(attributes={"dimensions0": 2, "height0": 2**31}),
         "must have at most 4,294,967,296 features; its sides are [8, 2147483648]."),
        (bad(**column("sparseIndex", [3, 1, 7, 8, 2], dimension="sparseDataDim0")),
         "sparseIndex0 must lie in [0, 8); example 2 has 8."),
        (bad(**column("sparseStart", [0, 3, 2])),
         "sparseStart0 must be at most sparseEnd0, and that at most 5; example 1 has 3 to 2."),
        (bad(**column("sparseEnd", [2, 2, 6])), "and that at most 5; example 2 has 2 to 6."),
        (bad(**column("sparseEnd", [2, 2, 2**64 - 1], "u8")),
         "variable 'sparseEnd0' must hold whole numbers below 2^63"),
        (bad(**column("sparseData", [1, 2, np.nan, 1, 1], "f4", "sparseDataDim0")),
         "finite numbers of float32; example 2 has nan."),
        (bad(**column("sparseData", [1, 2, 3], "f4")),
         "variable 'sparseData0' must hold 5 numbers; its shape is [3]."),
        (bad(without=["sparseData0"]), "variable 'sparseData0' must hold 5 numbers; it is missing."),
        (bad(without=["sparseIndex0"]), "variable 'sparseIndex0' must have one dimension; it is missing."),
        ({"sets": [dense_set(0, "x", [[1.0, np.inf], [2, 3]], sides=(2,))]},
         "finite numbers of float32; example 0 has inf."),
        ({"sets": [dense_set(0, "x", [[1.0, 2], [2, 3]], sides=(3,))]},
         "variable 'data0' must hold 6 numbers; its shape is [4]."),
        ({"sets": [dense_set(0, "x", [1, 5], data_type="Int", sides=(5,), flags=["Boolean"])]},
         "lie in [0, 5); example 1 has 5."),
        ({"sets": [sparse_set(0, "x", ROWS, flags=["Indexed"])], **column("index", [0, 3, 1])},
         "lie in [0, 3); example 1 has 3."),
        ({"sets": [sparse_set(0, "x", ROWS, flags=["Weighted"])], **column("dataWeight", [0, 1, -1], "f4")},
         "example 2 has -1.0."),
        ({"sets": [sparse_set(0, "x", ROWS), sparse_set(1, "x", ROWS)]},
         "the names of data sets must differ; 'x' appears twice."),
        ({"sets": [sparse_set(0, "x", ROWS), sparse_set(1, "y", ROWS[:2])]},
         "must have as many examples as 'x', 3; got 2."),
        ({"sets": [sparse_set(0, "x", ROWS), sparse_set(1, "x.heldout", ROWS, VALUES)]},
         "as a part of 'x' it must be sparse"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_one_sentence_and_leaves_nothing(netcdf, tmp_path, changes, message):
    path = netcdf("bad.nc", *changes.pop("sets"), **changes)
    with pytest.raises(DataError) as caught:
        import_data([path], tmp_path / "data")
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert [found.name for found in tmp_path.iterdir()] == ["bad.nc"]


def test_a_width_that_no_disk_could_hold_the_names_of_is_refused_at_once(netcdf, tmp_path, monkeypatch):
    huge = netcdf("huge.nc", sparse_set(0, "items", [[1, 2**32 - 2], [], [0]], sides=(2**32 - 1,)))
    monkeypatch.setattr("widenet.dsstne.data.available_memory", lambda: 2**40)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**30))
    rule = (
        r"data set 'items': a width of 4,294,967,295 takes 137\S* GB of disk; .* are free. Give"
        r" `features`, an index file"
    )
    with pytest.raises(CapacityError, match=rule):
        import_data([huge], tmp_path / "data")
    monkeypatch.setattr("widenet.dsstne.data.available_memory", lambda: 2**30)
    with pytest.raises(CapacityError, match=r"takes 34\S* GB of memory"):
        import_data([huge], tmp_path / "data")
    assert [found.name for found in tmp_path.iterdir()] == ["huge.nc"]
    (tmp_path / "index").write_text("".join(f"{name}\t{index}\n" for index, name in enumerate("abc")))
    few = netcdf("few.nc", sparse_set(0, "items", [[1], [], [0, 2]], sides=(2**32 - 1,)))
    import_data([few], tmp_path / "data", features=tmp_path / "index")
    assert Dataset.open(tmp_path / "data").field("items").width == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\t0\nb 1\n", "line 2: must be a name, a tab and a whole number; got 'b 1'."),
        ("a\t0\na\t1\n", "line 2: names must differ; 'a' appears twice."),
        ("a\t0\nb\t2\n", "indices must be 0, 1, 2 and so on, each once; got 2, but it has 2 names."),
        ("a\t0\nb\t0\n", "each once; got 0, which appears twice."),
        ("", "must hold at least one name; it is empty."),
        ("".join(f"{n}\t{n}\n" for n in range(9)), "must name at most the 8 features of"),
        ("a\t0\nb\t1\n", "sparseIndex0 must lie in [0, 2); example 0 has 3."),
    ],
)
def test_a_mistake_in_an_index_file_is_one_sentence(netcdf, tmp_path, text, message):
    (tmp_path / "features").write_text(text)
    with pytest.raises(DataError) as caught:
        import_data(
            [netcdf("x.nc", sparse_set(0, "items", ROWS))], tmp_path / "data", features=tmp_path / "features"
        )
    assert message in str(caught.value)


def test_options_must_name_what_is_there(netcdf, tmp_path):
    path = netcdf("x.nc", sparse_set(0, "items", ROWS))
    with pytest.raises(
        OptionError, match=r'`targets` must name data sets; got \'itms\'. Did you mean "items"\?'
    ):
        import_data([path], tmp_path / "data", targets=["itms"])
    with pytest.raises(OptionError, match="`features` must name data sets"):
        import_data([path], tmp_path / "data", features={"x": "y"})
    (tmp_path / "samples").write_text("u\t0\n")
    with pytest.raises(DataError, match=r"must name the 3 examples of .*; got 1 names"):
        import_data([path], tmp_path / "data", samples=tmp_path / "samples")
    with pytest.raises(OptionError, match="at least one NetCDF file"):
        import_data([], tmp_path / "data")

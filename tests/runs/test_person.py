"""Recommendations to somebody of whom more is known than items: categories, numbers, a sequence."""

import pytest

from tests.cli.conftest import widenet  # noqa: F401 a fixture
from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import DataError, FitError, OptionError
from widenet.runs import train

COUNTRIES, NUM_ITEMS = ["0", "1"], 8
TITLES = [f"{'Book' if item < 4 else 'Tome'} {item}" for item in range(NUM_ITEMS)]
ROWS = [[4 * (user % 2) + (user // 2 + step) % 4 for step in range(3)] for user in range(24)]
"""Users of two countries in turn, each with three of the four items of the country."""
INPUTS = [{"name": f"of {field}", "kind": "input", "field": field} for field in ("age", "items", "country")]
OUTPUT = {"name": "next", "kind": "output", "field": "items"}
TRAINING = {"epochs": 40, "batch_size": 8, "shards": 2, "optimizer": {"kind": "adam", "learning_rate": 0.05}}


def network(inputs):
    return {
        "layers": [
            *inputs,
            {"name": "taste", "source": [each["name"] for each in inputs], "units": 4, "activation": "tanh"},
            OUTPUT,
        ]
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset_from_lists(
        tmp_path_factory.mktemp("person") / "data",
        ROWS,
        width=NUM_ITEMS,
        titles=TITLES,
        ids=[f"u{user}" for user in range(len(ROWS))],
        sparse={"country": [[user % 2] for user in range(len(ROWS))]},
        dense={"age": [[0.2 + user % 2 / 2, 0.5] for user in range(len(ROWS))]},
    )


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    return train(network(INPUTS), TRAINING, data, tmp_path_factory.mktemp("person") / "run")


def items(found):
    return {int(one.item) // 4 for one in found}


def test_everything_that_is_known_of_a_user_gives_what_the_dataset_gives(model, data):
    for user in (0, 1, 7):
        fields = {"country": COUNTRIES[user % 2], "age": [0.2 + user % 2 / 2, 0.5]}
        found = model.recommend([TITLES[item] for item in ROWS[user]], k=5, fields=fields)
        assert found == model.recommend(users=f"u{user}", data=data, k=5)
        assert found == model.recommend(fields={**fields, "items": [str(item) for item in ROWS[user]]}, k=5)


def test_a_country_alone_is_enough_for_somebody_without_items(data, tmp_path):
    model = train(network(INPUTS[2:]), TRAINING, data, tmp_path / "run")
    assert items(model.recommend(fields={"country": "0"}, k=4)) == {0}
    assert items(model.recommend(fields={"country": ["1"]}, k=4)) == {1}
    assert items(model.recommend(users="u0", data=data, k=1)) == {0}
    assert items(model.recommend(users="u0", data=data, k=4, fields={"country": "1"})) == {1}
    assert items(model.recommend(["0"], k=4)) == {0}


def test_a_sequence_stands_beside_other_fields(tmp_path):
    rows = [[(user + step) % NUM_ITEMS for step in range(4)] for user in range(16)]
    data = dataset_from_lists(
        tmp_path / "data",
        rows,
        sequence=True,
        width=NUM_ITEMS,
        sparse={"country": [[user % 2] for user in range(16)]},
    )
    spec = {
        "layers": [
            {"name": "seen", "kind": "input", "field": "items"},
            {"name": "item", "units": 4, "activation": "linear"},
            {"name": "state", "kind": "recurrent", "cell": "gru", "units": 4},
            {**OUTPUT, "predict": "next"},
            {"name": "where", "kind": "input", "field": "country"},
            {"name": "taste", "units": 4},
            {"name": "again", "kind": "output", "field": "country"},
        ]
    }
    model = train(spec, {"epochs": 1, "shards": 2}, data, tmp_path / "run")
    given = model.recommend(["0", "1", "2", "3"], k=3, output="next", fields={"country": "0"})
    assert given == model.recommend(users="0", data=data, k=3, output="next")
    assert given == model.recommend(k=3, output="next", fields={"items": ["0", "1", "2", "3"]})
    assert given != model.recommend(["3", "2", "1", "0"], k=3, output="next")


MISTAKES = [
    ({"contry": "0"}, OptionError),
    ({"country": "XX"}, DataError),
    ({"country": 2.5}, OptionError),
    ({"age": 0.5}, OptionError),
    ({"age": ["0.5", 1]}, DataError),
    ({"age": [float("nan"), 1]}, DataError),
    ({"age": [1e39, 1]}, DataError),
]
"""Fields that nobody can have."""


@pytest.mark.parametrize(("fields", "error"), MISTAKES)
def test_what_is_not_known_is_refused(fields, error, model):
    with mistake(error):
        model.recommend(["1"], fields=fields)


def test_items_go_to_a_network_that_reads_some(data, tmp_path):
    model = train(network([INPUTS[0], INPUTS[2]]), {"epochs": 1}, data, tmp_path / "run")
    with mistake(FitError):
        model.recommend(["1"])
    with mistake(OptionError):
        model.recommend()
    with mistake(OptionError):
        model.recommend(fields={"age": [0.5, 1]}, values=[2.0])


def test_the_command_takes_fields_and_says_what_it_took(model, data, widenet):  # noqa: F811
    run = model.run.path
    ended = widenet(
        "recommend", run, "--items", "book 1", "--field", "country=0", "--field", "age=0.7,9", "-k", 2
    )
    assert ended.err == "With items: Book 1\nWith country: 0\nWith age: 0.7; 9\n"
    assert [line.split()[-1] for line in ended.out.splitlines()] == [
        f"({one.item})" for one in model.recommend(["1"], k=2, fields={"country": "0", "age": [0.7, 9]})
    ]
    assert widenet("recommend", run, "--items", "1").err == "With items: Book 1\n"
    ended = widenet("recommend", run, "--user", "u0", "--data", data.path, "--field", "country=1")
    assert ended.err == "With country: 1\n"
    for wrong in ("country", "age=young"):
        assert widenet("recommend", run, "--items", "1", "--field", wrong).status == 2


def test_a_text_that_fits_several_items_warns_which_one_counts(model):
    with pytest.warns(UserWarning, match="Book") as told:
        model.recommend(["Book"], k=2)
    assert [warning.filename for warning in told] == [__file__]
    assert model.recommend(["Book 1"], k=2)
    with pytest.warns(UserWarning, match="Book") as told:
        model.similar(["Book", "Book 1"], k=2)
    assert [warning.filename for warning in told] == [__file__]
    model.similar("Book 1", k=2)

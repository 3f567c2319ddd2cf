"""Recommendations for a DataFrame are the rows of `widenet predict`, to the bit."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.mistakes import mistake
from widenet.errors import CheckpointError, DataError, FitError, OptionError

pytest.importorskip("pyspark", reason="pyspark is not installed; `make test-spark` installs it")
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

LAYERS = [
    {"name": "history", "kind": "input", "field": "items"},
    {"name": "taste", "units": 24, "activation": "tanh"},
    {"name": "next", "kind": "output", "field": "items", "activation": "softmax", "loss": "cross_entropy"},
]

ITEMS = [f"i{n}" for n in range(60)]


def rows_of(num_users, users, items, seed=0):
    draw = random.Random(seed)
    rows = [
        (user, draw.choice(items), draw.randrange(5) / 2, draw.randrange(9))
        for user in users[:num_users]
        for _ in range(6)
    ]
    draw.shuffle(rows)
    return pa.table(dict(zip(("user", "item", "value", "time"), zip(*rows, strict=True), strict=True)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run, and the file of the interactions that it was trained on."""
    import widenet

    folder = tmp_path_factory.mktemp("run")
    pq.write_table(rows_of(200, range(200), ITEMS), folder / "rows.parquet")
    genres = [["poetry", "prose", "drama"][n % 3] for n in range(60)]
    items = {"item": ITEMS, "genre": genres, "in_stock": [n % 7 > 0 for n in range(60)]}
    pq.write_table(pa.table(items), folder / "items.parquet")
    widenet.ingest(
        folder / "rows.parquet", folder / "ds", value="value", time="time", items=folder / "items.parquet"
    )
    training = {"epochs": 2, "batch_size": 64, "optimizer": {"kind": "adam", "learning_rate": 0.01}}
    widenet.train({"name": "n", "layers": LAYERS}, training, folder / "ds", folder / "run", device="cpu")
    return folder / "run"


def by_command(run, table, tmp_path, words, options):
    """The rows of `widenet predict`, by user and rank."""
    import widenet
    from widenet.predict.files import table_of

    dataset = widenet.ingest(table, tmp_path / "ds", vocabulary=run, **words)
    blocks = widenet.Model.load(run, "cpu").predict(dataset, **options)
    tables = [*map(table_of, blocks)]
    return [
        tuple(row.values())
        for row in pa.concat_tables(tables)
        .sort_by([("user", "ascending"), ("rank", "ascending")])
        .to_pylist()
    ]


@pytest.mark.parametrize(
    ("users", "words", "options"),
    [
        # The last block has one user: a product of one row rounds otherwise than that of several.
        ([f"{n % 7}-{n}" for n in range(1025)], {"value": "value", "time": "time"}, {"k": 10}),
        (list(range(1030)), {}, {"k": 70, "exclude_seen": False}),
    ],
    ids=["text", "numbers"],
)
def test_recommendations_are_those_of_the_command(spark, run, tmp_path, users, words, options):
    from widenet.spark import predict

    table = rows_of(len(users), users, [*ITEMS, "unheard", "of"], seed=1)
    frame = spark.createDataFrame(table.to_pandas()).repartition(5)
    found = predict(frame, run, user="user", item="item", device="cpu", **words, **options)
    rows = [tuple(row) for row in found.orderBy("user", "rank").collect()]
    expected = by_command(run, table, tmp_path, words, options)
    assert rows == expected
    assert found.schema.simpleString() == "struct<user:string,item:string,score:float,rank:int>"


def test_all_rules_of_the_command_have_the_same_effect(spark, run, tmp_path):
    from widenet.spark import predict

    users = [str(n) for n in range(300)]
    table = rows_of(len(users), users, ITEMS, seed=2)
    (tmp_path / "never.txt").write_text("i3\ni4\n")
    (tmp_path / "never_for.csv").write_text("user,item\n" + "".join(f"{user},i15\n" for user in users))
    rules = {
        "never": str(tmp_path / "never.txt"),
        "only": ITEMS[:50],
        "never_for": tmp_path / "never_for.csv",
        "only_for": {"7": ITEMS[10:30], "8": ["i11"], "9": []},
        "weights": {f"i{n}": 0.5 + n % 2 for n in range(20)},
        "at_most": {"genre": 2},
        "where": {"in_stock": True},
    }
    found = predict(spark.createDataFrame(table.to_pandas()), run, user="user", item="item", k=6, **rules)
    rows = [tuple(row) for row in found.orderBy("user", "rank").collect()]
    assert rows == by_command(run, table, tmp_path, {}, {"k": 6, **rules})
    for name in rules:
        others = {rule: value for rule, value in rules.items() if rule != name}
        assert rows != by_command(run, table, tmp_path / name, {}, {"k": 6, **others}), name


def test_what_a_frame_lacks_is_refused(spark, run, tmp_path):
    import widenet
    from widenet.spark import predict

    frame = spark.createDataFrame([("a", "i1"), (None, "i2")], "user string, item string")
    with mistake(DataError, column="user"):
        predict(frame, run, user="user", item="item")
    broken = spark.createDataFrame([("a\0", "i1")], "user string, item string")
    with mistake(DataError, column="user"):
        predict(broken, run, user="user", item="item")
    with mistake(DataError, place="the DataFrame"):
        predict(
            spark.createDataFrame([("a", "new")], "user string, item string"), run, user="user", item="item"
        )
    with mistake(CheckpointError, place="nowhere"):
        predict(frame, tmp_path / "nowhere", user="user", item="item")
    with mistake(OptionError, option="k"):
        predict(frame.dropna(), run, user="user", item="item", k=0)
    with mistake(DataError):
        predict(frame.dropna(), run, user="user", item="item", never=["i99"])
    with mistake(FitError):
        predict(frame.dropna(), run, user="user", item="item", output="last")
    with mistake(OptionError, option="device"):
        predict(frame.dropna(), run, user="user", item="item", device="tpu")
    data = widenet.dataset_from_lists(tmp_path / "ds", [[0, 1], [1, 0]], sequence=True)
    gru = [LAYERS[0], {"name": "state", "kind": "recurrent", "units": 3}, {**LAYERS[2], "predict": "next"}]
    widenet.train({"name": "s", "layers": gru}, {"epochs": 1}, data, tmp_path / "sequence", device="cpu")
    with mistake(FitError, place="sequence"):
        predict(frame, tmp_path / "sequence", user="user", item="item")

# ruff: noqa: E501 - a row of a table is a line
"""Command lines that fail, of every command: one sentence, status 2, and everything stays as it was."""

import json

import pytest

from tests.mistakes import mistake
from widenet.cli import main
from widenet.errors import CheckpointError, DataError, DocumentError, FitError, OptionError

# fmt: off
FILES = {
    'v.txt': 'a\t1 2\nb\t2 1\n',
    'empty': '',
    'space.txt': 'a 1 2\n',
    'word.txt': 'a\t1 x\n',
    'short.txt': 'a\t1 2\nb\t1\n',
    'latin.txt': b'\xff\t1 2\n',
    'nan.txt': 'a\tnan 2\n',
    'large.txt': 'a\t1e39 2\n',
    'three.txt': 'a\t1 2 3\n',
    'empty.npy': '',
    'cut.npy': b'\x93NUMPY',
    'text.parquet': 'x',
    'text.keras': 'PK',
    'no.prototxt': b'\xff',
    'text.bin': 'x',
    'cut.nc': b'\x89HDF\r\n\x1a\n',
    'object.json': '{}',
    'fly.json': '{"Network": "x", "Data": "y", "Command": "Fly"}',
    's.txt': 's1\ta,1:b,2\n',
    'untabbed.txt': 's1 a\n',
    "broken.json": '{"layers": [',
    "huge-rate.json": '{"optimizer": {"kind": "sgd", "learning_rate": 1e38}, "epochs": 9, "shards": 2}',
    "validated.json": '{"evaluation": {}}',
    "misspelt.json": json.dumps(
        {
            "layers": [
                {"name": "a", "kind": "input", "field": "item"},
                {"name": "b", "kind": "output", "field": "items"},
            ]
        }
    ),
    "direct.json": json.dumps(
        {
            "layers": [
                {"name": "a", "kind": "input", "field": "items"},
                {"name": "b", "kind": "output", "field": "items", "cosine": {}},
            ]
        }
    ),
    "relu.json": json.dumps(
        {
            "layers": [
                {"name": "a", "kind": "input", "field": "items"},
                {"name": "b", "units": 3, "activation": "linear"},
                {"name": "c", "kind": "output", "field": "items", "activation": "linear", "loss": "l2"},
            ]
        }
    ),
    "banned-unknown.txt": "nobody-knows\n",
}
"""The folder `bad`."""

LINES = [
    ("knn search bad/none --queries bad/v.txt", DataError, "bad/none"),
    ("knn search bad --queries bad/v.txt", DataError, "bad"),
    ("knn search bad/empty --queries bad/v.txt", DataError, "bad/empty"),
    ("knn search bad/space.txt --queries bad/v.txt", DataError, "bad/space.txt", None, 1),
    ("knn search bad/word.txt --queries bad/v.txt", DataError, "bad/word.txt", None, 1),
    ("knn search bad/short.txt --queries bad/v.txt", DataError, "bad/short.txt", None, 2),
    ("knn search bad/latin.txt --queries bad/v.txt", DataError, "bad/latin.txt", None, 1),
    ("knn search bad/nan.txt --queries bad/v.txt", DataError, "bad/nan.txt", None, 1),
    ("knn search bad/large.txt --queries bad/v.txt", DataError, "bad/large.txt", None, 1),
    ("knn search bad/three.txt --queries bad/v.txt", FitError),
    ("knn search bad/empty.npy --queries bad/v.txt", DataError, "bad/empty.npy"),
    ("knn search bad/cut.npy --queries bad/v.txt", DataError, "bad/cut.npy"),
    ("knn search bad/text.parquet --queries bad/v.txt", DataError, "bad/text.parquet"),
    ("knn search bad/v.txt --queries bad/v.txt --device tpu", OptionError),
    ("knn like run Nobody", DataError),
    ("knn like bad Hobbit", CheckpointError, "bad"),
    ("knn like run Hobbit --layer taste", FitError),
    ("export bad --out OUT.onnx", CheckpointError, "bad"),
    ("export run --out OUT.txt", OptionError, None, "out"),
    ("export run --out likes.csv/x.onnx", OptionError, "likes.csv/x.onnx"),
    ("import bad/none.keras --out OUT", DataError, "bad/none.keras"),
    ("import bad --out OUT", DataError, "bad"),
    ("import bad/no.prototxt --out OUT", OptionError, "bad/no.prototxt"),
    ("import bad/text.bin --out OUT", OptionError, "bad/text.bin"),
    ("import bad/text.keras --out OUT --field x", OptionError, None, "field"),
    ("import bad/text.keras --out OUT --weights bad/v.txt", OptionError),
    ("dsstne export-model bad OUT", CheckpointError, "bad"),
    ("dsstne encoder bad/fly.json", DocumentError, "bad/fly.json"),
    ("dsstne generateNetCDF -d gl -o OUT -i bad/untabbed.txt -f OUT.f -s OUT.s -c", DataError, "bad/untabbed.txt"),
    ("dsstne generateNetCDF -d gl -o OUT -i bad/s.txt -f OUT.f -s OUT.s", OptionError, "OUT.f"),
    ("dsstne generateNetCDF -d gl -o OUT -i bad/s.txt -f OUT.f -s OUT.s -c -m", OptionError, "-c"),
    ("dsstne train -c bad/none -i bad/v.txt -o bad/v.txt -n OUT", DocumentError, "bad/none"),
    ("dsstne train -c bad/object.json -i bad/v.txt -o bad/v.txt -n OUT", DocumentError, "bad/object.json"),
    ("dsstne predict -d gl -n bad/cut.nc -i bad/s.txt -o bad/s.txt -r bad/s.txt -f bad/s.txt -s OUT", DataError, "bad/cut.nc"),
    ("dsstne predict -d gl -n x -i x -o x -r x -f x -s OUT -p zz", OptionError, "-p"),
    ("data describe bad", DataError, "bad"),
    ("data split data --out OUT --heldout nan", OptionError, None, "heldout"),
    ("data split data --out OUT", OptionError),
    ("data split whole --out OUT --heldout-last 1", DataError, "whole", "heldout_last"),
    ("data split whole --out OUT --heldout-since 7d --validation-since 3d", OptionError, None, "validation_since"),
    ("data ingest likes.csv --out OUT --keep-times", OptionError, None, "keep_times"),
    ("data split whole --out OUT --heldout-users 0.5", OptionError, None, "heldout_users"),
    ("data split whole --out OUT --heldout-users 2 --users-out OUT2", OptionError, None, "heldout_users"),
    ("evaluate run --data data --output nxt", FitError),
    ("predict run --data whole --part heldout --out OUT.csv", FitError, "whole"),
    ("report run --out likes.csv", OptionError, "likes.csv"),
    ("dsstne predict -d gl -n x -i x -o x -r x -f x -s bad", OptionError, "bad"),
    ("train network.json training.json --data data --out OUT --from data", CheckpointError, "data"),
    ("train network.json training.json --data data --out OUT --from bad", CheckpointError, "bad"),
    ("data ingest likes.csv --out OUT --memory lots", OptionError, None, "memory"),
    ("data ingest likes.csv --out OUT --min-user-items 1000", DataError, "likes.csv"),
    ("data ingest likes.csv --out OUT --titles likes.csv", DataError, "likes.csv"),
    ("data ingest no*.csv --out OUT", DataError, "no*.csv"),
    ("data ingest likes.csv --out OUT --weight user", OptionError, None, "weight"),
    ("data ingest bad --out OUT", DataError, "bad"),
    ("train nowhere.json training.json --data data --out OUT", DocumentError, "nowhere.json"),
    ("train bad/broken.json training.json --data data --out OUT", DocumentError, "bad/broken.json", None, 1),
    ("train network.json bad/validated.json --data whole --out OUT", FitError, "whole"),
    ("train bad/misspelt.json training.json --data data --out OUT", FitError, "bad/misspelt.json"),
    ("train bad/direct.json training.json --data data --out OUT", FitError, "bad/direct.json"),
    ("train network.json training.json --data nowhere --out OUT", DataError, "nowhere"),
    ("train network.json training.json --data likes.csv --out OUT", DataError, "likes.csv"),
    ("train network.json training.json --data data --out run", CheckpointError, "run"),
    ("train network.json training.json --data data --out data", CheckpointError, "data"),
    ("train network.json training.json --data data --out likes.csv", CheckpointError, "likes.csv"),
    ("train network.json training.json --data data --out OUT --resume", CheckpointError, "OUT"),
    ("train network.json training.json --data data --out OUT --device tpu", OptionError),
    ("evaluate nowhere --data data", CheckpointError, "nowhere"),
    ("evaluate run --data whole", FitError, "whole"),
    ("evaluate run --data data --device gpu", OptionError),
    ("predict run --data data --out OUT.cvs", OptionError, "OUT.cvs"),
    ("predict run --data data --out OUT --format xml", OptionError),
    ("predict run --data data --out likes.csv/x.csv", OptionError, "likes.csv/x.csv"),
    ("predict run --data data --out data", OptionError, "data"),
    ("predict run --data data --out OUT.csv --never bad/banned-unknown.txt", DataError, "bad/banned-unknown.txt"),
    ("recommend run --items Hobitt", DataError),
    ("recommend run", OptionError),
    ("recommend nowhere --items Hobbit", CheckpointError, "nowhere"),
    ("fingerprint data", CheckpointError, "data"),
    ("data ingest nowhere.csv --out OUT", DataError, "nowhere.csv"),
    ("data ingest likes.csv --out data", DataError, "data"),
    ("data ingest likes.csv --out run --overwrite", DataError, "run"),
    ("data split nowhere --out OUT --heldout 0.1", DataError, "nowhere"),
    ("data split whole --out OUT --heldout 0.1 --field item", DataError, "whole"),
    ("data verify nowhere", DataError, "nowhere"),
    ("demo --data nowhere --out OUT", DataError, "nowhere"),
    ("demo --out data", OptionError, "data"),
    ("plan network.json training.json", OptionError, None, "width"),
    ("plan network.json training.json --data data --width items=9", OptionError, None, "width"),
    ("plan network.json training.json --width items", OptionError, None, "width"),
    ("plan network.json training.json --width items=0", OptionError, None, "width"),
    ("plan network.json training.json --width itms=9", OptionError, None, "width"),
    ("plan network.json training.json --width items=9 --device-memory much", OptionError, None, "device_memory"),
    ("plan network.json training.json --width items=9 --processes 3", OptionError),
    ("plan network.json training.json --width items=9 --measure", OptionError, None, "measure"),
    ("plan network.json training.json --data data --measure --processes 2", OptionError, None, "processes"),
    ("plan network.json training.json --data data --measure --device-memory 9GB", OptionError, None, "device_memory"),
    ("plan network.json training.json --data data --scratch . --weights-in disk", OptionError, None, "scratch"),
    ("plan network.json training.json --width items=9 --weights-in disk --device cuda", OptionError, None, "weights_in"),
    ("dsstne translate bad/object.json", DocumentError, "bad/object.json"),
]
"""Command lines, and the class, place, option and line of their mistake. OUT is a path where nothing is."""
# fmt: on


def write(folder, name, content):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("row", LINES, ids=lambda row: row[0])
def test_a_mistake_has_its_facts_and_leaves_everything_as_it_was(row, refused, desk):
    for name, content in FILES.items():
        write(desk / "bad", name, content)
    line, *facts = row
    with mistake(*facts):
        raise refused(line)


def test_a_byte_order_mark_is_passed_over(widenet, desk):
    (desk / "bad" / "a.json").write_bytes(b"\xef\xbb\xbf" + (desk / "network.json").read_bytes())
    assert widenet("plan", "bad/a.json", "training.json", "--width", "items=9").status == 0


@pytest.mark.usefixtures("desk")
def test_a_training_that_diverges_is_a_mistake_too(widenet, desk):
    for name in ("relu.json", "huge-rate.json"):
        write(desk / "bad", name, FILES[name])
    ended = widenet("train", "bad/relu.json", "bad/huge-rate.json", "--data", "data", "--out", "out")
    assert (ended.status, ended.out) == (2, "")
    assert "Traceback" not in ended.err
    assert ended.err.splitlines()[-1].startswith("widenet: epoch ")


@pytest.mark.usefixtures("inside")
def test_cuda_without_a_gpu_is_refused(widenet, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    ended = widenet("evaluate", "run", "--data", "data", "--device", "cuda")
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "cuda" in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "trian",
        "train",
        "train network.json",
        "train network.json training.json --out x",
        "train network.json training.json --data data --out x --no-such-option",
        "evaluate RUN --interval",
        "evaluate run --data data -k 0",
        "evaluate run --data data -k many",
        "evaluate run --data data --part test",
        "predict run --data data --out x.csv -k 0",
        "recommend run --items Hobbit -k 0",
        "knn search bad/v.txt --queries bad/v.txt -k 0",
        "export run --out x.onnx --top-k 0",
        "data split whole --out x --heldout much",
        "data ingest likes.csv --out x --skip-bad-lines -1",
        "schema nets",
    ],
)
@pytest.mark.usefixtures("inside")
def test_a_line_that_does_not_parse_is_one_line_that_names_the_command(line, widenet):
    ended = widenet(*line.split())
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("widenet")
    assert ended.err.count("\n") == 1
    assert ended.err.endswith(" --help`.\n")


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("evaluate run --data data --interval 3", ["--interval"]),
        ("train --data data --out new --scratch s3://secret/a", ["--scratch"]),
        ("import http://secret --out new", ["FILE"]),
        ("train network.json training.json --data data --out run", ["--out", "--resume", "--overwrite"]),
        ("data ingest likes.csv --out new --keep-times", ["--keep-times", "--time"]),
        ("recommend run --data data", ["--data", "--user"]),
    ],
)
@pytest.mark.usefixtures("inside")
def test_options_are_written_as_the_command_has_them(line, flags, widenet):
    ended = widenet(*line.split())
    assert (ended.status, [flag for flag in flags if flag not in ended.err]) == (2, [])
    assert "`" not in ended.err
    assert "secret" not in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "predict run --data data --out likes.csv",
        "predict run --data data --out likes.csv --overwrite",
        "predict run --data data --out new.txt",
        "export run --out taken.onnx",
        "export run --out taken.onnx --overwrite",
        "quantize run --out run2",
    ],
)
def test_a_place_that_is_taken_is_refused_before_the_model_is_loaded(line, refused, desk, monkeypatch):
    (desk / "taken.onnx").write_text("mine")
    (desk / "run2").mkdir()
    (desk / "run2" / "mine").touch()
    monkeypatch.setattr("widenet.runs.Model.load", None)
    with pytest.raises((CheckpointError, OptionError)):
        raise refused(line)


class OutOfMemoryError(RuntimeError):
    """As torch calls its own."""


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "data"), "data: Permission denied."),
        (MemoryError(), "there is not enough memory."),
        (OutOfMemoryError("CUDA out of memory"), "there is not enough memory."),
        (RuntimeError("alloc: can't allocate memory: 8 TB"), "there is not enough memory."),
    ],
)
def test_what_the_machine_refuses_is_one_line_and_a_defect_is_not(error, said, widenet, monkeypatch):
    def refuse(_):
        raise raised[0]

    raised = [error]
    monkeypatch.setattr("widenet.data.dataset.Dataset.open", refuse)
    ended = widenet("evaluate", "run", "--data", "data")
    assert (ended.status, ended.err) == (2, f"widenet: {said}\n")
    raised[0] = RuntimeError("a defect")
    with pytest.raises(RuntimeError, match="a defect"):
        main(["evaluate", "run", "--data", "data"])

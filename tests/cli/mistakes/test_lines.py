"""Command lines that fail, of every command: one line, status 2, and everything stays as it was."""

import json
import resource
import shutil

import pytest

from widenet.cli import main


def call(*words):
    main(list(words))


DOCUMENTS = {
    "broken.json": '{"layers": [',
    "list.json": "[1, 2]",
    "twice.json": '{"epochs": 1, "epochs": 2}',
    "unknown-field.json": '{"epocs": 3}',
    "no-metric.json": '{"evaluation": {"metric": "ndgc@20"}}',
    "no-k.json": '{"evaluation": {"metric": "recall"}}',
    "wrong-part.json": '{"evaluation": {"part": "test"}}',
    "zero.json": '{"epochs": 0}',
    "huge-rate.json": '{"optimizer": {"kind": "sgd", "learning_rate": 1e38}, "epochs": 9, "shards": 2}',
    "wrong-optimizer.json": '{"optimizer": "adamm"}',
    "validated.json": '{"evaluation": {}}',
    "empty.json": "",
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
    "weights-bad.csv": "item,weight\n1,heavy\n",
    "biased.json": '{"evaluation": {"metric": "popularity@20"}}',
    "weights-negative.csv": "item,weight\n1,-2\n",
    "weights-no-column.csv": "item,wait\n1,2\n",
    "personal-bad.csv": "usr,item\nu1,1\n",
    "no-user.csv": "a,b\n1,2\n",
    "ragged.csv": "user,item\n1,2\n3\n",
    "values.csv": "user,item,rating\n1,2,five\n",
    "empty.csv": "",
}


TRAIN = "train network.json training.json --data data --out OUT"


MISTAKES = {
    "train nowhere.json training.json --data data --out OUT": "nowhere.json: no such file",
    "train data training.json --data data --out OUT": "data must be a JSON file; got a directory",
    "train network.json nowhere.json --data data --out OUT": "nowhere.json: no such file",
    "train BAD/broken.json training.json --data data --out OUT": "broken.json: line 1, column 13",
    "train BAD/empty.json training.json --data data --out OUT": "empty.json: line 1, column 1",
    "train BAD/list.json training.json --data data --out OUT": (
        "list.json must be a JSON object with named fields; got [1, 2]"
    ),
    "train network.json BAD/twice.json --data data --out OUT": 'the key "epochs" stands twice',
    "train network.json BAD/unknown-field.json --data data --out OUT": (
        'epocs is not a known field. Did you mean "epochs"?'
    ),
    "train network.json BAD/zero.json --data data --out OUT": "epochs must be at least 1; got 0",
    "train network.json BAD/wrong-optimizer.json --data data --out OUT": 'Did you mean "adam"?',
    "train network.json BAD/wrong-part.json --data data --out OUT": (
        "evaluation.part must be one of validation, heldout"
    ),
    "train network.json BAD/no-metric.json --data data --out OUT": (
        'evaluation.metric: "ndgc@20" is not a known metric. Did you mean "ndcg'
    ),
    "train network.json BAD/no-k.json --data data --out OUT": 'Write "recall@10"',
    "train network.json BAD/validated.json --data whole --out OUT": ('0.1`, or remove "evaluation" from '),
    "train network.json BAD/biased.json --data data --out OUT": (
        "evaluation.metric must be a metric that is better when larger"
    ),
    "train BAD/misspelt.json training.json --data data --out OUT": (
        'layers[0].field ("a"): the dataset has no field "item". Did'
    ),
    "train BAD/direct.json training.json --data data --out OUT": (
        "needs a hidden layer between the output and the sparse input"
    ),
    "train network.json training.json --data nowhere --out OUT": (
        "nowhere: a dataset must be a directory; this does not exist"
    ),
    "train network.json training.json --data run --out OUT": (
        "run: a dataset must hold dataset.json; it is missing"
    ),
    "train network.json training.json --data likes.csv --out OUT": (
        "likes.csv: a dataset must be a directory; this is a file"
    ),
    "train network.json training.json --data data --out run": (
        "run exists already. Resume it with --resume, replace it with --overwrite, or choose another --out."
    ),
    "train network.json training.json --data data --out data": "data exists already. Choose another --out.",
    "train network.json training.json --data data --out likes.csv": (
        "likes.csv exists already. Choose another --out."
    ),
    f"{TRAIN} --resume": "OUT does not exist",
    f"{TRAIN} --device tpu": 'device must be "cpu" or "cuda"; got "tpu"',
    "evaluate nowhere --data data": "nowhere does not exist. Name the directory of a run.",
    "evaluate data --data data": "data is not a run",
    "evaluate run --data run": "run: a dataset must hold dataset.json",
    "evaluate run --data whole": "has no heldout part. Use ",
    "evaluate run --data data --output nxt": (
        'The network has no output called "nxt". Name one of its outputs: next.'
    ),
    "evaluate run --data data --device gpu": 'device must be "cpu" or "cuda"; got "gpu"',
    "predict run --data data --out OUT.cvs": (
        'the extension must be one of .parquet, .csv, .jsonl, .dsstne; got ".cvs"'
    ),
    "predict run --data data --out OUT --format xml": '"xml" is not a known format of recommendations.',
    "predict run --data data --out likes.csv/x.csv": (
        "likes.csv/x.csv: its folder must be one to write to; got: "
    ),
    "predict run --data data --out data": "data: must be a file; got a directory",
    "predict run --data data --out OUT.csv --never nowhere.txt": (
        "nowhere.txt cannot be read: No such file or directory"
    ),
    "predict run --data data --out OUT.csv --never BAD/banned-unknown.txt": (
        "banned-unknown.txt must name at least one of the 9 items, such as "
    ),
    "predict run --data data --out OUT.csv --weights BAD/weights-bad.csv": (
        'line 2: column "weight" must be a finite number; got "heavy"'
    ),
    "predict run --data data --out OUT.csv --weights BAD/weights-negative.csv": (
        'line 2: column "weight" must be at least 0'
    ),
    "predict run --data data --out OUT.csv --weights BAD/weights-no-column.csv": (
        'column "weight" is missing; the first line has item'
    ),
    "predict run --data data --out OUT.csv --never-for BAD/personal-bad.csv": (
        'column "user" is missing; the first line has usr, item'
    ),
    "recommend run --items Hobitt": "has the id or the title 'Hobitt'. Nearest: The Hobbit",
    "recommend run": 'name at least one item, such as --items "The Hobbit"',
    "recommend nowhere --items Hobbit": "nowhere does not exist",
    "fingerprint data": "data is not a run",
    "data ingest nowhere.csv --out OUT": "nowhere.csv: the file does not exist",
    "data ingest likes.csv --out data": "data: already exists. Replace it with --overwrite, choose",
    "data ingest likes.csv --out run --overwrite": "run: only a dataset that widenet wrote is replaced",
    "data split nowhere --out OUT --heldout 0.1": (
        "nowhere: a dataset must be a directory; this does not exist"
    ),
    "data split whole --out OUT --heldout 2": "--heldout must be a share in [0, 1); got 2",
    "data split whole --out OUT --heldout 0.1 --field item": 'Did you mean "items"?',
    "data verify nowhere": "nowhere: a dataset must be a directory",
    "demo --data nowhere --out OUT": "nowhere must be an interactions file, or a folder with one of",
    "demo --out data": "data holds something else than an earlier demonstration",
    "demo --out likes.csv": "likes.csv holds something else than an earlier demonstration",
}
"""Commands and what is wrong with them. OUT is a path where nothing is, BAD a folder of bad files."""


@pytest.fixture
def bad(tmp_path):
    for name, text in DOCUMENTS.items():
        (tmp_path / "bad").mkdir(exist_ok=True)
        (tmp_path / "bad" / name).write_text(text)
    return tmp_path / "bad"


def everything(*folders):
    """Every file under some folders, with its content."""
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_with_status_2_and_leaves_everything_as_it_was(
    line, widenet, inside, bad, tmp_path
):
    before = everything(inside, tmp_path)
    out = tmp_path / "out"
    ended = widenet(*[word.replace("OUT", str(out)).replace("BAD", str(bad)) for word in line.split()])
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("widenet: ")
    assert ended.err.count("\n") == 1
    assert MISTAKES[line].replace("OUT", str(out)) in ended.err
    assert everything(inside, tmp_path) == before
    assert not out.exists()


@pytest.mark.parametrize("file", ["no-user.csv", "ragged.csv", "empty.csv"])
def test_a_bad_source_is_one_line_after_the_phases_and_leaves_nothing(file, widenet, bad, tmp_path):
    before = everything(tmp_path)
    ended = widenet("data", "ingest", bad / file, "--out", tmp_path / "out")
    lines = ended.err.splitlines()
    assert ended.status == 2
    assert lines[-1].startswith(f"widenet: {bad / file}: ")
    assert [line for line in lines[:-1] if not line.endswith(" ...")] == []
    assert everything(tmp_path) == before


@pytest.mark.usefixtures("inside")
def test_a_training_that_diverges_is_a_mistake_too(widenet, bad, tmp_path):
    ended = widenet(
        "train", bad / "relu.json", bad / "huge-rate.json", "--data", "data", "--out", tmp_path / "out"
    )
    assert (ended.status, ended.out) == (2, "")
    assert "Traceback" not in ended.err
    assert ended.err.splitlines()[-1].startswith("widenet: epoch ")
    assert ended.err.endswith('arose in layer "c". Lower the learning rate, or set gradient_norm_limit.\n')


@pytest.mark.usefixtures("inside")
def test_cuda_without_a_gpu_is_refused(widenet, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    ended = widenet("evaluate", "run", "--data", "data", "--device", "cuda")
    assert ended.status == 2
    assert "device" in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "trian",
        "train",
        "train network.json",
        "train network.json training.json --out x",
        "train network.json training.json --data data --out x --no-such-option",
        "evaluate run --data data -k 0",
        "evaluate run --data data -k many",
        "evaluate run --data data --part test",
        "predict run --data data --out x.csv -k 0",
        "recommend run --items Hobbit -k 0",
        "data split whole --out x --heldout much",
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


def test_a_damaged_run_is_one_line(widenet, world, tmp_path):
    shutil.copytree(world / "run", tmp_path / "run")
    weights = tmp_path / "run" / "model" / "trunk.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    ended = widenet("fingerprint", tmp_path / "run")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"widenet: {weights}")
    assert ended.err.count("\n") == 1


@pytest.mark.usefixtures("inside")
def test_what_the_operating_system_refuses_is_one_line(widenet, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("widenet.data.dataset.Dataset.open", refuse)
    ended = widenet("evaluate", "run", "--data", "data")
    assert (ended.status, ended.err) == (
        2,
        "widenet: data: Permission denied. Check the path and the disk.\n",
    )


class OutOfMemoryError(RuntimeError):
    """As torch calls its own."""


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OutOfMemoryError("CUDA out of memory"),
        RuntimeError("alloc: can't allocate memory: 8 TB"),
    ],
)
def test_memory_that_runs_out_is_one_line_and_another_runtime_error_is_not(error, widenet, monkeypatch):
    def refuse(_):
        raise error

    monkeypatch.setattr("widenet.data.dataset.Dataset.open", refuse)
    ended = widenet("evaluate", "run", "--data", "data")
    message = (
        'widenet: there is not enough memory. Lower "units", "batch_size" or -k, or use more --processes.\n'
    )
    assert (ended.status, ended.err) == (2, message)
    error = RuntimeError("a defect")
    with pytest.raises(RuntimeError, match="a defect"):
        call("evaluate", "run", "--data", "data")


@pytest.mark.parametrize(
    ("known", "message"),
    [(True, "widenet: The plan needs 1.4"), (False, "widenet: there is not enough memory. Lower")],
    ids=["refused beforehand", "of a machine that does not tell its memory"],
)
def test_units_beyond_any_memory_are_one_line(known, message, widenet, inside, tmp_path, monkeypatch):
    if not known:
        monkeypatch.setattr("widenet.parallel.group.available_memory", lambda: None)
    layers = json.loads((inside / "network.json").read_text())["layers"]
    (tmp_path / "vast.json").write_text(
        json.dumps({"layers": [layers[0], {**layers[1], "units": 2**31 - 1}, layers[2]]})
    )
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (64 * 2**30, limits[1]))
    try:
        ended = widenet(
            "train",
            tmp_path / "vast.json",
            "training.json",
            "--data",
            "data",
            "--out",
            tmp_path / "run",
            "--device",
            "cpu",
        )
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert ended.err.startswith(message)

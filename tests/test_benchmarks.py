"""Programs that are measured take turns, each in its own process, and one that fails does not stop the
others.
"""

import argparse
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import catalogue, commands, device, latest
from benchmarks.__main__ import parser
from benchmarks.alternately import Measured, Program, _Worker, measure, measure_alone
from benchmarks.device import Step
from benchmarks.published import Rows, compared, tables_of
from benchmarks.results import Table, processor, publish, quartiles, spread
from benchmarks.steps.torch_bags import Autoencoder, arguments_of
from benchmarks.steps.torch_chunks import ChunkedCrossEntropy, shares
from benchmarks.synthetic import draw_interactions
from tests.scripts import Script
from widenet.errors import DataError


def program(name, function="writing", libraries=(), **arguments):
    return Program(name, f"tests.toys:{function}", arguments, libraries)


def test_programs_take_turns_in_one_direction_and_then_in_the_other(tmp_path):
    programs = [program(name, path=str(tmp_path / "steps"), letter=name) for name in "AB"]
    found = measure(programs, rounds=2, turn_seconds=0.0, warmup=0)
    assert (tmp_path / "steps").read_text() == "AB" + "AB" + "BA"
    assert [len(measured.seconds) for measured in found] == [2, 2]
    assert found[0].first["loss"] == 1.5
    assert found[0].facts["peak_bytes"] > 2**20


def test_programs_that_start_together_take_turns_as_well(tmp_path):
    programs = [program(name, path=str(tmp_path / name), letter=name) for name in "AB"]
    found = measure(programs, rounds=2, turn_seconds=0.0, warmup=1, together=True)
    assert [len(measured.seconds) for measured in found] == [2, 2]
    assert [(tmp_path / name).read_text() for name in "AB"] == ["AAAA", "BBBB"]


def test_a_program_that_is_alone_takes_all_its_turns_before_the_next_one(tmp_path):
    programs = [program(name, path=str(tmp_path / "steps"), letter=name) for name in "AB"]
    found = measure_alone(programs, rounds=2, turn_seconds=0.0, warmup=0)
    assert (tmp_path / "steps").read_text() == "AAABBB"
    assert [len(measured.seconds) for measured in found] == [2, 2]


@pytest.mark.parametrize("measuring", [partial(measure, together=True), measure_alone])
def test_a_program_that_is_late_is_left_out(measuring):
    found = measuring([program("late", "endless")], rounds=1, turn_seconds=0.0, deadline=time.monotonic() + 1)
    assert (found[0].problem, found[0].seconds) == ("out of time", [])


def test_a_late_program_ends_at_once_and_turns_are_sized_after_all_first_steps(tmp_path, monkeypatch):
    order = []

    def noted(name):
        method = getattr(_Worker, name)

        def call(worker, *arguments):
            if worker.program.name == "late":
                worker.deadline = time.monotonic()
            method(worker, *arguments)
            order.append((name, worker.program.name, worker.process.poll() is None or worker.process.wait()))

        monkeypatch.setattr(_Worker, name, call)

    for name in ("finish_first_step", "warm_up"):
        noted(name)
    programs = [program("A", path=str(tmp_path / "steps"), letter="A"), program("late", "endless")]
    measure(programs, rounds=1, turn_seconds=0.0, together=True)
    assert [(name, who) for name, who, _ in order] == [
        ("finish_first_step", "A"),
        ("finish_first_step", "late"),
        ("warm_up", "A"),
        ("warm_up", "late"),
    ]
    assert order[2][2] is True
    assert order[3][2] == -signal.SIGKILL


@pytest.mark.parametrize("cells", [7, 3 * 40, 10**6])
def test_a_loss_in_chunks_has_the_gradients_of_the_whole_one(cells):
    torch.manual_seed(0)
    model = Autoencoder(40, [5], softmax=True)
    targets = arguments_of(np.array([3, 9, 11, 2, 39, 0, 7]), np.array([0, 3, 4, 4, 5, 6, 7]))
    model.double()(*targets[:3], targets[3].double()).backward()
    whole = [parameter.grad.float() for parameter in model.parameters()]
    model.float().zero_grad()
    x_EH = model.last_hidden(model.bag(targets[0], targets[1]))
    scores = model.scores
    loss = ChunkedCrossEntropy.apply(x_EH, scores.weight, scores.bias, targets, torch.float32, cells, shares)
    loss.backward()
    assert torch.allclose(loss, model(*targets))
    for parameter, gradient in zip(model.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)


BROKEN = {
    "greedy": (program("greedy", "greedy"), r"needs more than [\d.]+ GB"),
    "dying": (program("dying", "dying"), "ended with status 3"),
    "nowhere": (
        program("nowhere", "nowhere"),
        "AttributeError: module 'tests.toys' has no attribute 'nowhere'",
    ),
    "missing": (
        program("missing", "greedy", libraries=["no-such-library"]),
        "no-such-library is not installed",
    ),
}


def test_programs_that_fail_say_why_and_the_others_go_on(tmp_path):
    sound = program("sound", path=str(tmp_path / "steps"), letter="S")
    found = measure([*(broken for broken, _ in BROKEN.values()), sound], rounds=1, turn_seconds=0.0, warmup=0)
    problems = [problem for _, problem in BROKEN.values()]
    for measured, problem in zip(found, problems, strict=False):
        assert re.fullmatch(problem, measured.problem)
    assert found[-1].problem is None
    assert [len(measured.seconds) for measured in found] == [0] * len(BROKEN) + [1]


def test_a_row_gives_the_ratio_of_turns_of_the_same_round():
    ours, theirs = Measured(program("ours"), [1.0, 2.0, 4.0]), Measured(program("theirs"), [3.0, 4.0, 4.0])
    table = Table("three rounds", ["program", "ratio", "ms"])
    table.add(theirs, ours)
    assert table.rows == [["theirs", "2.00 (1.50 to 2.50)", "4,000.0 (3,500.0 to 4,000.0)"]]


def test_a_program_that_failed_keeps_its_row(tmp_path):
    ours, theirs = Measured(program("ours"), [1.0]), Measured(program("theirs"), problem="out of memory")
    table = Table("one of two", ["program", "ratio", "ms", "more"])
    table.add(ours, ours, "x")
    table.add(theirs, ours)
    publish("sample", [table], tmp_path)
    assert "| theirs | out of memory | - | - |" in (tmp_path / "sample.md").read_text()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md", ".svg"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_cuda_device_the_measurement_of_one_says_so():
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks", "gpu"], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == "This measures a CUDA device, and torch sees none. Run it where there is one.\n"


def test_the_spread_is_the_quartiles():
    assert quartiles([4.0, 1.0, 3.0, 2.0, 5.0]) == (3.0, 2.0, 4.0)
    assert spread([2.0], "{:.1f}") == "2.0 (2.0 to 2.0)"


TESTS = """
import pytest

def test_right(): pass
def test_wrong(): assert 1 == 2
@pytest.mark.skip(reason="no device")
def test_left_out(): pass
"""


def outcomes(steps, folder, monkeypatch, seconds=120.0):
    monkeypatch.setitem(device.STEPS, "try", steps)
    monkeypatch.setattr(device, "LIMIT_SECONDS", seconds)
    monkeypatch.setattr(sys, "argv", ["device", "try", str(folder)])
    with pytest.raises(SystemExit) as ended:
        device.main()
    written = json.loads((folder / "device-try.json").read_text())["steps"]
    assert all(
        f"| {step['name']} | {step['status']} |" in (folder / "device-try.md").read_text() for step in written
    )
    return ended.value.code, written


def test_tests_are_counted_and_the_others_go_on(tmp_path, monkeypatch):
    for name, text in (("mixed", TESTS), ("skipped", TESTS.partition("def test_right")[0])):
        (tmp_path / f"test_{name}.py").write_text(text)
    (tmp_path / "test_skipped.py").write_text(
        "import pytest\npytestmark = pytest.mark.skip\ndef test_it(): pass\n"
    )
    words = ["pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    steps = [Step(name, [*words, str(tmp_path / f"test_{name}.py")]) for name in ("mixed", "skipped")]
    status, found = outcomes([*steps, Step("here", ["this"])], tmp_path / "out", monkeypatch)
    assert status == 1
    assert [step["status"] for step in found] == ["failed", "skipped", "passed"]
    assert found[0]["counts"] == {"tests": 3, "failed": 1, "skipped": 1}
    assert found[0]["failed"] == ["test_mixed.test_wrong"]
    assert "assert 1 == 2" in found[0]["output"]


def test_a_step_that_takes_too_long_is_ended_and_later_ones_have_no_time(tmp_path, monkeypatch):
    endless = tmp_path / "endless.py"
    endless.write_text("print('begun', flush=True)\nwhile True: pass\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    status, found = outcomes(
        [Step("slow", ["endless"]), Step("late", ["this"])], tmp_path / "out", monkeypatch, 5.0
    )
    assert status == 1
    assert [step["status"] for step in found] == ["out of time"] * 2
    assert found[0]["output"] == "begun\n"


def test_all_passed_gives_status_0(tmp_path, monkeypatch):
    status, found = outcomes([Step("here", ["this"])], tmp_path, monkeypatch)
    assert (status, [step["status"] for step in found]) == (0, ["passed"])


PAGE = """#### Steps

| program | time | ms |
|---|---|---|
| widenet | 1.00 (0.9 to 1.1) | 1,200.0 |
| rival | 2.00 | - |
| gone | 3.00 | 5 |

Processor: A (family 1), 2 threads.

| program | time | ms |
|---|---|---|
| widenet | 7.00 | 8 |

Processor: B, 2 threads.
"""


def test_rows_are_compared_with_the_page_by_title_and_processor():
    cells = {"widenet": ["1.00 (0.9 to 1.1)", "600.0"], "rival": ["2.00", "-"], "other": ["4", "4"]}
    columns = ["program", "time", "ms"]
    assert [(one.processor, len(one.cells)) for one in tables_of(PAGE)] == [("A (family 1)", 3), ("B", 1)]
    assert list(compared([Rows("Steps", columns, cells, "A (family 1)")], PAGE)) == [
        "Steps: widenet: ms 600.0, before 1,200.0 (-50 %)",
        "Steps: rival: unchanged",
        "Steps: other: new",
        "Steps: gone: not printed by this run",
    ]
    assert list(compared([Rows("Steps", columns, cells, "C")], PAGE)) == [
        "Steps: new for C; known are A (family 1), B"
    ]
    assert list(compared([Rows("Steps", ["program"], cells, "A")], PAGE)) == ["Steps: new"]
    printed = Table("Steps", columns, [["widenet", "1", "2"]])
    (found,) = tables_of(str(printed))
    assert (found.title, found.columns, found.cells) == ("Steps", columns, {"widenet": ["1", "2"]})
    assert found.processor == processor()


@pytest.mark.parametrize(("users", "items", "per_user"), [(300, 1000, 20), (300, 40, 5), (50, 5000, 150)])
def test_generated_interactions_have_every_user_and_item_and_none_twice(users, items, per_user):
    half = users // 2
    blocks = [
        draw_interactions(block, users, items, len(block) * per_user)
        for block in (range(half), range(half, users))
    ]
    user, item = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
    pairs = set(zip(user.tolist(), item.tolist(), strict=True))
    assert len(user) == len(pairs) == users * per_user
    assert (set(user.tolist()), set(item.tolist())) == (set(range(users)), set(range(items)))
    again = draw_interactions(range(half, users), users, items, (users - half) * per_user)
    assert all(map(np.array_equal, again, blocks[1]))
    assert np.mean(user % 20 == item % 20) > 0.1


def test_the_figures_of_a_command_are_its_own(tmp_path):
    writing = "open('file', 'wb').write(bytearray(60 << 20)); sum(range(10**6))"
    ran = commands.measured([sys.executable, "-c", writing], tmp_path)
    assert (tmp_path / "file").stat().st_size == 60 << 20
    assert ran.seconds > 0
    assert ran.cpu_seconds > 0
    assert 60 << 20 < ran.peak_bytes < 120 << 20
    with pytest.raises(SystemExit, match=r"(?s)-c 1 // 0 failed:.*ZeroDivisionError"):
        commands.measured([sys.executable, "-c", "1 // 0"], tmp_path)


def test_the_catalogue_is_ingested_trained_and_recommended_from(tmp_path, monkeypatch, capsys):
    """Its commands run in copies of a process that has loaded widenet, whose figures nobody measures."""

    def forked(line, folder):
        assert line[:3] == [sys.executable, "-m", "widenet"]
        script = Script("from widenet.cli import main; main()", folder / "said", words=line[3:], cwd=folder)
        said, complained = script.communicate()
        assert script.returncode == 0, said + complained
        shutil.rmtree(folder / "said")
        return commands.Ran(1.5, 2.5, 10**9, 10**6)

    monkeypatch.setattr(catalogue, "measured", forked)
    asked = argparse.Namespace(
        items=400,
        users=300,
        interactions=6000,
        recommended=30,
        batch=16,
        sample=64,
        folder=tmp_path,
        out=tmp_path,
    )
    catalogue.run(asked)
    (table,) = json.loads((tmp_path / "catalogue.json").read_text("utf-8"))["tables"]
    names = ["ingest", "one epoch, exact l2", "one epoch, sampled softmax", "ingest for recommendations"]
    assert [row[0] for row in table["rows"]] == [*names, "recommendations for 30 users"]
    share, _, said = table["notes"][-1].partition(" ")
    assert said.startswith("of the recommendations are of the user's group")
    assert 0 <= float(share) < 0.5
    assert [row[1:-1] for row in table["rows"]] == [["1.5", "2.5", "1.00", "0.00"]] * 5
    assert str(table["notes"][-1]) in capsys.readouterr().out
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md"]


def test_the_latest_items_are_the_last_of_each_line(tmp_path, monkeypatch):
    monkeypatch.setattr(latest, "DATA", tmp_path)
    (tmp_path / "gowalla").mkdir()
    (tmp_path / "gowalla" / "train.txt").write_text("0 0 1 2 3 4\n1 0 2 5\n")
    ordered = tmp_path / "ordered.txt"
    ordered.write_text("0 4 0 3 1 2\n1 2 5 0\n")
    dataset = latest.cut_latest(ordered, 0.3, tmp_path)
    held = [dataset.sparse("items", [row], "heldout").indices.numpy() for row in range(2)]
    assert [sorted(dataset.vocabulary("items").ids(items)) for items in held] == [["1", "2"], ["0"]]
    ordered.write_text("0 4 0 3 1 2\n1 2 5 1\n")
    with pytest.raises(DataError, match=r"must have the users and items of the published training part"):
        latest.cut_latest(ordered, 0.3, tmp_path / "other")


def test_every_benchmark_that_a_page_names_has_these_options():
    folders = ("docs", "benchmarks/results", "examples/*")
    pages = [Path("README.md"), *(page for folder in folders for page in Path().glob(f"{folder}/*.md"))]
    texts = [page.read_text("utf-8").replace("\\\n", " ") for page in pages]
    lines = [line for text in texts for line in re.findall(r"python -m benchmarks([^`\n#]*)", text)]
    named = [shlex.split(line) for line in lines]  # as a shell does: names of sets may have blanks
    assert len(named) > 60
    for words in [words for words in named if words[:1] != ["NAME"]]:
        parser().parse_args(words)

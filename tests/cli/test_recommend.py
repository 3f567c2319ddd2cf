"""`widenet recommend` loads only what a person's recommendations take."""

import subprocess
import sys

import pytest

LOADED = """
import sys
from widenet.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*sorted({"duckdb", "numba", "pandas", "scipy", "torch"} & set(sys.modules)), file=sys.stderr)
"""


def ended(inside, *words):
    return subprocess.run(
        [sys.executable, "-c", LOADED, *words], cwd=inside, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("item", ["0", "the hobbit", "hobbit"])
def test_recommendations_load_torch_alone_of_the_slow_libraries(item, inside):
    found = ended(inside, "recommend", "run", "--items", item, "-k", "2")
    assert (found.returncode, len(found.stdout.splitlines())) == (0, 2)
    assert found.stderr.splitlines()[-1] == "torch"


@pytest.mark.parametrize(
    "line",
    [
        "recommend nowhere --items 0",
        "recommend data --items 0",
        "recommend run",
        "recommend run --data data",
        "evaluate nowhere --data data",
        "evaluate run --data nowhere",
        "predict nowhere --data data --out new.csv",
        "predict run --data nowhere --out new.csv",
        "fingerprint nowhere",
        "train nowhere.json training.json --data data --out new",
        "train network.json training.json --data nowhere --out new",
        "train training.json network.json --data data --out new",
    ],
)
def test_a_mistake_is_told_before_torch_is_loaded(line, inside):
    found = ended(inside, *line.split())
    assert found.returncode == 2
    message, loaded = found.stderr.splitlines()
    assert message.startswith("widenet: ")
    assert loaded in ("", "pandas")  # pyarrow loads pandas


@pytest.mark.parametrize(("k", "said"), [(8, False), (9, True)])
def test_a_list_that_is_shorter_than_asked_for_says_so(k, said, widenet, world):
    found = widenet("recommend", world / "run", "--items", "0", "-k", k)
    assert len(found.out.splitlines()) == 8
    shown = [line for line in found.err.splitlines() if line.startswith("-k")]
    assert shown == ["-k asks for 9 items; only 8 are left to recommend."] * said

"""What is installed: every file of the package and no other, running by itself, and a missing library
named with its extra.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from widenet.data.lists import dataset_from_lists

ROOT = Path(__file__).parent.parent
PACKAGE = {
    str(path.relative_to(ROOT))
    for path in (ROOT / "widenet").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
}
NATIVE = {f"widenet/native/{path.name}" for path in (ROOT / "widenet/native").glob("*.so")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

EXTRAS = {
    "netCDF4": ("dsstne", "netCDF4"),
    "onnx": ("onnx", "onnx"),
    "h5py": ("keras", "h5py"),
    "google.protobuf": ("caffe", "protobuf"),
    "optuna": ("tune", "optuna"),
}
"""The libraries that may be missing, each with its extra and what a message calls it."""

COMMANDS = {
    "netCDF4": [
        "import data.nc --out OUT",
        "dsstne import-data data.nc --out OUT",
        "dsstne export-model run OUT",
        "dsstne generateNetCDF -d gl -i text -o OUT -f features -s samples -c",
        "dsstne train -c text -i text -o text -n OUT",
        "dsstne predict -d gl -n data.nc -i text -o text -r text -f text -s OUT",
        "dsstne encoder commands.json",
    ],
    "onnx": ["export run --out OUT.onnx"],
    "h5py": ["import model.keras --out OUT"],
    "optuna": ["tune space.json --data data --out OUT"],
}
"""Command lines that need a library. OUT is a path where nothing is. TensorBoard, which is always there,
brings protobuf.
"""

WITHOUT = """
import json, sys

class Missing:
    names = []

    def holds(self, name):
        return any(name == each or name.startswith(each + ".") for each in self.names)

    def find_spec(self, name, path=None, target=None):
        if self.holds(name):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

missing = Missing()
sys.meta_path.insert(0, missing)
sys.path.insert(0, {folder!r})
from widenet.cli import main
for missing.names, line in json.loads({lines!r}):
    for name in [name for name in sys.modules if missing.holds(name)]:
        del sys.modules[name]
    try:
        main(line)
    except SystemExit as ended:
        print(f"ended {{ended.code or 0}}", file=sys.stderr)
"""
"""Runs command lines, each where some libraries are missing."""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source distribution, made from a copy of what the repository has."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in ("widenet", "native", "tests", "docs", "benchmarks", "examples"):
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    code = (
        f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r});"
        f" build_meta.build_sdist({str(out)!r})"
    )
    called(["-c", code], cwd=source)
    return {path.suffix: path for path in out.iterdir()}


def called(words, cwd, **more):
    """A Python process that must end well; gives what it printed."""
    ended = subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False, **more
    )
    assert ended.returncode == 0, ended.stderr
    return ended


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built):
    names = set(zipfile.ZipFile(built[".whl"]).namelist())
    assert {name for name in names if ".dist-info/" not in name} == PACKAGE | NATIVE
    assert "-py3-none-" in built[".whl"].name
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_source_distribution_holds_the_package_and_what_builds_it(built):
    with tarfile.open(built[".gz"]) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    rest = {name for name in names if not name.startswith("widenet.egg-info/")}
    assert rest == PACKAGE | {
        "LICENSE",
        "MANIFEST.in",
        "PKG-INFO",
        "README.md",
        "pyproject.toml",
        "setup.cfg",
        "setup.py",
        *(f"native/{path.name}" for path in (ROOT / "native").iterdir()),
    }


def isolated(lines, cwd):
    """What command lines, each with the libraries that it lacks, print and how they end."""
    given = json.dumps([(missing, line.split()) for missing, line in lines])
    code = WITHOUT.format(folder=str(ROOT), lines=given)
    return called(["-I", "-W", "error", "-c", code], cwd=cwd, env=dict(os.environ))


@pytest.fixture
def folder(tmp_path):
    """Files that the commands name; they hold little, for a missing library is told before they are read."""
    dataset_from_lists(tmp_path / "data", [[0, 1], [1, 2]], width=3)
    for name in ("text", "features", "samples", "model.keras"):
        (tmp_path / name).write_text("")
    (tmp_path / "vectors.txt").write_text("a\t1 2\nb\t2 1\n")
    (tmp_path / "data.nc").write_bytes(b"\x89HDF\r\n\x1a\n")
    (tmp_path / "commands.json").write_text("{}")
    return tmp_path


def test_a_missing_library_is_one_sentence_with_its_extra(folder):
    before = sorted(folder.rglob("*"))
    asked = [([library], line.replace("OUT", "out")) for library, lines in COMMANDS.items() for line in lines]
    ended = isolated(asked, cwd=folder).stderr.splitlines()
    assert ended[1::2] == ["ended 2"] * len(asked)
    for ((library,), line), said in zip(asked, ended[::2], strict=True):
        extra, name = EXTRAS[library]
        assert said.startswith(f"widenet: {name}: must be installed"), line
        assert said.rpartition("`")[0].rpartition("`")[2] == f"pip install 'widenet[{extra}]'", line
    assert sorted(folder.rglob("*")) == before


def test_every_library_that_may_be_missing_is_in_the_extra_that_is_named():
    texts = [(ROOT / path).read_text("utf-8") for path in PACKAGE if path.endswith(".py")]
    named = {found for text in texts for found in re.findall(r'\boptional\(\s*"(.*?)",\s*"(.*?)"', text)}
    assert named == {(name, extra) for extra, name in EXTRAS.values()} | {
        ("h5py", "dsstne"),  # which looks into NetCDF files first
        ("obstore", "stores"),  # which only a URI needs
        ("mlflow", "mlflow"),  # which is looked for when a training begins
        ("plotly", "tune"),  # which draws what Optuna has found
        ("pyspark", "spark"),  # which no command needs
        ("starlette", "serve"),  # which may be there
    }
    for name, extra in named:
        assert any(each.startswith(name) for each in PROJECT["optional-dependencies"][extra])


def test_importing_every_module_warns_of_nothing_and_needs_no_triton():
    # All other rooms can be imported without their extras.
    extras = {"widenet.spark": "pyspark", "widenet.serve.": "starlette"}
    absent = tuple(beginning for beginning, library in extras.items() if not find_spec(library))
    absent += ("widenet.kernels.triton.",)
    code = (
        "import importlib, pkgutil, sys, widenet\n"
        "sys.modules['triton'] = None\n"
        "def missing(name):\n"
        f"    assert name.startswith({absent}), name\n"
        "for module in pkgutil.walk_packages(widenet.__path__, 'widenet.', missing):\n"
        f"    if not module.name.startswith({absent}):\n"
        "        importlib.import_module(module.name)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert called(["-W", "error", "-c", code], cwd=ROOT, env=environment).stderr == ""

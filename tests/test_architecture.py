"""Imports point down and make no circles, libraries stay in their rooms, and names say something."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "widenet"

LEVELS = [
    {"__main__", "dsstne"},
    {"cli"},
    {"frameworks", "tuning", "ui"},
    {"demo", "interop", "report", "serve", "spark"},
    {"runs"},
    {"baselines", "tracking"},
    {"knn", "predict", "training"},
    {"metrics", "model"},
    {"parallel"},
    {"data", "kernels"},
    {"plan"},
    {"spec", "stores"},
    {"pictures", "root"},
]
"""The rooms, from the top down: a module imports from its own room and from levels below it, nothing else."""

CONFINED = {
    "duckdb": ("widenet/data/",),
    "h5py": ("widenet/dsstne/", "widenet/frameworks/", "widenet/interop/"),
    "mlflow": ("widenet/tracking/mlflow_run.py",),
    "netCDF4": ("widenet/dsstne/",),
    **dict.fromkeys(("google.protobuf", "onnx"), ("widenet/frameworks/",)),
    **dict.fromkeys(("optuna", "plotly", "sqlalchemy"), ("widenet/tuning/",)),
    **dict.fromkeys(("boto3", "obstore"), ("widenet/stores/bucket.py",)),
    "pyspark": ("widenet/spark/",),
    "pydantic": (
        "widenet/spec/",
        "widenet/data/manifest.py",
        "widenet/dsstne/data.py",
        "widenet/stores/",
        "widenet/training/run_directory.py",
        "widenet/tuning/space.py",
    ),
    "typer": ("widenet/cli/", "widenet/demo", "widenet/dsstne/commands.py"),
    "rich": ("widenet/cli/", "widenet/runs/progress.py"),
    **dict.fromkeys(("prometheus_client", "uvicorn"), ("widenet/serve/",)),
    **dict.fromkeys(("msgspec", "starlette"), ("widenet/serve/", "widenet/ui/")),
    "safetensors": ("widenet/training/checkpoint.py",),
    "torch.distributed": ("widenet/parallel/",),
    "triton": ("widenet/kernels/triton/",),
    **dict.fromkeys(("torch.utils.tensorboard", "benchmarks", "labs", "tests"), ()),
    "tensorboard": ("widenet/training/loop.py",),
}
"""Where each library may be imported: the beginnings of paths."""

EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}
"""File names that say nothing about what is inside."""

FLAG = re.compile(r"(?<![-\w])--(?=[a-z]|$)(?!mpi=)")
"""An option of the command line, or the dashes of one; srun's --mpi is not ours."""


def python_files(*directories: str) -> list[str]:
    return sorted(
        str(path.relative_to(ROOT)) for directory in directories for path in (ROOT / directory).rglob("*.py")
    )


MODULES = python_files("widenet")


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text("utf-8"), path)


@cache
def imports(path: str) -> list[tuple[int, str]]:
    """Line and absolute dotted name of all that a module imports or reaches as torch.distributed."""
    return [found for node in ast.walk(parsed(path)) for found in imported(path, node)]


def imported(path: str, node: ast.AST) -> Iterator[tuple[int, str]]:
    package = Path(path).parent.parts
    if isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
        source = ".".join(part for part in (base, node.module) if part)
        yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        yield node.lineno, f"torch.{node.attr}"


def within(name: str, library: str) -> bool:
    return name == library or name.startswith(f"{library}.")


def room(path: str) -> str:
    """The room of a file: "model" for widenet/model/network.py, "root" for widenet/errors.py."""
    name = Path(path).with_suffix("").parts[1]
    return "root" if f"widenet/{name}.py" in MODULES and name != "__main__" else name


def level(name: str) -> int:
    found = [position for position, rooms in enumerate(LEVELS) if name in rooms]
    assert found, f"widenet/{name} has no level: give it one in LEVELS"
    return found[0]


def test_imports_point_down():
    wrong = []
    for path in MODULES:
        own = room(path)
        for line, name in imports(path) if path != "widenet/__init__.py" else ():
            if within(name, "widenet"):
                target = room(f"widenet/{name.partition('.')[2].split('.')[0]}.py")
                if target != own and level(target) <= level(own):
                    wrong.append(f"{path}:{line}: {own} must not import {name}")
    assert wrong == []


def test_libraries_stay_in_their_rooms():
    assert [
        f"{path}:{line}: {library} belongs in {' and '.join(places)}"
        for path in MODULES
        for line, name in imports(path)
        for library, places in CONFINED.items()
        if within(name, library) and not path.startswith(places)
    ] == []


def module_name(path: str) -> str:
    """The dotted name of a module's file: "widenet.model" for widenet/model/__init__.py."""
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")


def test_no_module_imports_itself_through_others():
    names = {module_name(path) for path in MODULES}
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        own = graph.setdefault(module_name(path), set())
        for _, name in imports(path):
            while name and name not in names:
                name = name.rpartition(".")[0]
            own |= {name} - {"", module_name(path)}
    TopologicalSorter(graph).prepare()


def test_one_file_decides_which_implementation_runs():
    """Whether Triton is there is asked nowhere else."""
    assert [path for path in MODULES if "TRITON_INTERPRET" in (ROOT / path).read_text("utf-8")] == [
        "widenet/kernels/native.py"
    ]


def test_the_package_itself_imports_nothing_until_asked():
    eager = [node for node in parsed("widenet/__init__.py").body if not is_late(node)]
    found = [
        found for node in eager for each in ast.walk(node) for found in imported("widenet/__init__.py", each)
    ]
    names = {name for _, name in [*found, *imports("widenet/late_imports.py")]}
    names -= {"widenet.late_imports.late_names", "widenet.errors.OptionError"}
    assert [name for name in names if name.split(".")[0] not in sys.stdlib_module_names] == []


def is_late(node: ast.stmt) -> bool:
    """Whether a statement runs later than the import of its module, or never."""
    return isinstance(node, ast.FunctionDef) or (
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    )


def test_documents_splits_and_the_command_line_do_not_load_torch():
    modules = ("widenet.spec.network", "widenet.spec.training", "widenet.plan.binding", "widenet.cli")
    code = f"import {', '.join(modules)}, widenet.data.split, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


FILES = python_files("widenet", "tests", "benchmarks", "labs")


def test_every_module_says_what_it_is():
    begins = re.compile(r'(#[^\n]*\n)*"""((?!""").)*\.\s*"""', re.DOTALL)
    assert [path for path in FILES if not begins.match((ROOT / path).read_text("utf-8"))] == []


def test_names_of_files_say_something():
    assert [path for path in FILES if EMPTY_NAMES & set(Path(path).with_suffix("").parts)] == []


def test_tests_that_make_and_ci_name_are_there():
    texts = [path.read_text("utf-8") for path in (ROOT / "Makefile", *(ROOT / ".ci").iterdir())]
    named = {name for text in texts for name in re.findall(r"\btests/[\w/]+(?:\.py)?", text)}
    assert [name for name in named if not (ROOT / name).exists()] == []


FOLDERS_OF_KINDS = {"cli", "commands", "formats", "layers", "spec", "triton"}
"""Folders whose files are named after the kinds of layers, commands, formats and operations."""


def test_a_name_of_a_file_is_given_once():
    paths = [Path(path) for path in MODULES]
    names = [path.stem for path in paths if path.parent.name not in FOLDERS_OF_KINDS]
    assert {name for name in names if names.count(name) > 1} - {"__init__", "__main__"} == set()


def test_only_the_command_line_writes_options_with_dashes():
    below = [path for path in MODULES if not path.startswith(("widenet/cli/", "widenet/dsstne/commands.py"))]
    assert [
        f"{path}:{node.lineno}: {node.value}"
        for path in below
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and FLAG.search(node.value)
    ] == []

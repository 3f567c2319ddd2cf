"""A kind of layer between inputs and outputs is known to its own files alone."""

import ast
from pathlib import Path
from typing import get_args

import pytest

from widenet.spec.layers import Trunk

ROOT = Path(__file__).parents[2]
MODULES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "widenet").rglob("*.py"))
KINDS = {spec.__name__ for spec in get_args(Trunk)}
TRANSLATORS = ("widenet/dsstne/", "widenet/frameworks/")
"""Where each kind of layer between inputs and outputs is told apart: in the words of other programs."""


def told_apart(tree: ast.AST) -> list[str]:
    """The lines of a module that ask which kind a layer between inputs and outputs is."""
    asking = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.MatchClass)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"))
    ]
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in asking
        if any(isinstance(part, ast.Name) and part.id in KINDS for part in ast.walk(node))
    ]


def test_a_kind_of_layer_is_known_to_its_own_files_alone():
    assert {
        path: lines
        for path in MODULES
        if not path.startswith(TRANSLATORS) and (lines := told_apart(ast.parse((ROOT / path).read_text())))
    } == {}


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(layer, HiddenLayer)",
        "isinstance(layer, InputLayer | PoolingLayer)",
        "isinstance(layer, (InputLayer, PoolingLayer))",
        "match layer:\n    case RecurrentLayer(units=units):\n        pass",
    ],
)
def test_a_question_for_the_kind_of_a_layer_is_seen(source):
    assert len(told_apart(ast.parse(source))) == 1

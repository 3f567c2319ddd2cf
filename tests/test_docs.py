"""The pages of docs/ are current, complete and true: what they link, show and promise is there."""

import importlib.util
import inspect
import json
import re
import shlex
from pathlib import Path

import pytest

import widenet
from tests.commands import blocks, commands, complaint, every_command, relative_links, resolved
from widenet import errors
from widenet.spec.document import Document, Spec, kinds
from widenet.spec.losses import Loss
from widenet.spec.network import NetworkSpec
from widenet.spec.optimizers import OfMoments
from widenet.spec.parts import LayerBase, SummingLayer, TrunkLayer
from widenet.spec.training import TrainingSpec
from widenet.tuning.space import SpaceSpec

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(DOCS).as_posix(): path.read_text("utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if DOCS / "templates" not in path.parents
} | {"../README.md": (ROOT / "README.md").read_text("utf-8")}


def loaded_generator():
    description = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module


generate = loaded_generator()


def every_spec(base=Spec):
    return [spec for found in base.__subclasses__() for spec in (found, *every_spec(found))]


def documents(text):
    """The JSON blocks of a page that are documents or spaces, with their kind."""
    for block in blocks(text, "json"):
        values = json.loads(block)
        if isinstance(values, dict) and values.keys() == {"network", "training"}:
            yield SpaceSpec, values
        elif isinstance(values, dict) and "layers" in values:
            yield NetworkSpec, values
        elif isinstance(values, dict) and ("optimizer" in values or "epochs" in values):
            yield TrainingSpec, values


SPECS = [
    spec
    for spec in every_spec()
    if spec.__module__.startswith("widenet.spec.")
    if spec not in (Document, OfMoments, LayerBase, TrunkLayer, SummingLayer)
]
"""What may stand in a network or training document, or in a space; the others are bases."""
EXCEPTIONS = [
    name for name, found in vars(errors).items() if inspect.isclass(found) and issubclass(found, Exception)
]
DOCUMENTS = [
    pytest.param(*found, id=f"{name}-{place}")
    for name, text in PAGES.items()
    for place, found in enumerate(documents(text))
]
COMMANDS = {
    shlex.join(words): words
    for text in PAGES.values()
    for block in blocks(text, "bash")
    for words in commands(block)
}


def test_generated_pages_are_current():
    assert generate.stale_pages(DOCS) == []


@pytest.mark.parametrize(("name", "command"), every_command())
def test_every_command_argument_and_option_has_help(name, command):
    assert command.help, name
    assert [parameter.name for parameter in command.params if not parameter.help] == []


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.__name__)
def test_every_spec_and_field_is_described_and_has_a_section(spec):
    assert spec.__doc__
    assert [name for name, field in spec.model_fields.items() if not field.description] == []
    page = "tuning.md" if spec.__module__ == "widenet.tuning.space" else "network-documents.md"
    assert " ".join(spec.__doc__.split()) in PAGES[page]


def test_every_exception_and_every_public_name_is_documented():
    assert [name for name in EXCEPTIONS if f"| `{name}` |" not in PAGES["errors.md"]] == []
    assert [name for name in widenet.__all__ if f"\n## {name}\n" not in PAGES["python-reference.md"]] == []


def test_every_loss_has_its_mathematics():
    assert [kind for kind in kinds(Loss) if f"`{kind}`" not in PAGES["losses.md"]] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_leads_somewhere(page):
    folder = (DOCS / page).parent
    assert [target for target in relative_links(PAGES[page]) if not (folder / target).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_python_file_that_is_named_is_there(page):
    """Up to a part that stands for any name, such as KIND.py."""
    named = re.findall(r"`([\w/.-]+\.py)\b[^`]*`", PAGES[page])
    folders = (ROOT, ROOT / "widenet", ROOT / "widenet" / "kernels")
    paths = [re.sub(r"/[A-Z]+\.py$", "", path) for path in named]
    assert [path for path in paths if not any((folder / path).exists() for folder in folders)] == []


@pytest.mark.parametrize(("model", "values"), DOCUMENTS)
def test_every_document_shown_is_valid(model, values):
    model.of(values)


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_shown_can_be_parsed(words):
    assert complaint(words) is None
    command, rest = resolved(words)
    command.make_context(command.name, rest)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_in_a_sentence_exists_with_its_options(page):
    text = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    shown = [words for line in re.findall(r"`(widenet [^`\n]+)`", text) for words in commands(line)]
    assert {shlex.join(words): complaint(words) for words in shown if complaint(words)} == {}


def test_every_figure_of_a_table_of_benchmarks_is_published():
    """The tables of benchmarks, and widenet's rows of quality, hold what commands have printed."""
    printed = " ".join(path.read_text("utf-8") for path in (ROOT / "benchmarks/results").glob("*.md"))
    known = set(re.findall(r"[\d,]+\.\d+", printed))
    quality = (PAGES["quality.md"], PAGES["../README.md"])
    rows = re.findall(r"^\|.*\d.*$", PAGES["benchmarks.md"], re.MULTILINE)
    rows += [row for page in quality for row in re.findall(r"^\| widenet.*$", page, re.MULTILINE)]
    assert len(rows) > 40
    assert [row for row in rows if not known.issuperset(re.findall(r"[\d,]+\.\d+", row))] == []


def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    *_, example, documents_example = blocks(PAGES["python.md"], "python")
    namespace = {}
    exec(compile(example, "python.md", "exec"), namespace)
    recall, *recommended, _ = capsys.readouterr().out.splitlines()[: 1 + 3 + 1]
    assert float(recall) > 0.9
    assert [int(line.split()[1]) % 2 for line in recommended] == [0, 0, 0]
    exec(compile(documents_example, "python.md", "exec"), {})
    said, _, shown = capsys.readouterr().out.partition("\n")
    assert said.startswith("my network: layers")
    assert TrainingSpec.parse(shown).epochs == 3

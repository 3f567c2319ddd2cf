"""Generates the pages of docs/ that depend on the code: `python docs/generate.py`.

With `--check`, it only compares them with the existing pages.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer.main
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import widenet
from widenet import errors
from widenet.cli import app
from widenet.cli.app import COMMAND_GROUPS
from widenet.spec import (
    activations,
    initializers,
    layers,
    losses,
    network,
    optimizers,
    parts,
    training,
)
from widenet.spec.document import kinds

DOCS = Path(__file__).parent
NOTICE = "<!-- Written by docs/generate.py from the code; change that, then run `make docs`. -->"

GROUPS: dict[str, Any] = {
    "Activations": activations.Activation,
    "Pooling functions": activations.Pooling,
    "Losses": losses.Loss,
    "Samples": losses.Sample,
    "Initializers": initializers.Initializer,
    "Optimizers": optimizers.Optimizer,
    "Schedules": optimizers.Schedule,
}
"""The choices that are told apart by `kind`, by the title of their section."""

NETWORK_PARTS: dict[str, type[BaseModel]] = {
    "Network": network.NetworkSpec,
    **{f"{kind.capitalize()} layers": spec for spec in get_args(layers.Layer) for kind in kinds(spec)},
    "Shared weights": parts.Share,
    "Batch normalization": parts.BatchNormalization,
    "Sparseness": parts.Sparseness,
    "Optimizer settings": optimizers.OptimizerSettings,
    "Delta boost": layers.DeltaBoost,
    "Cosine": layers.Cosine,
    "Neighbourhood": layers.Neighbourhood,
}
TRAINING_PARTS: dict[str, type[BaseModel]] = {
    "Training": training.TrainingSpec,
    "Evaluation": training.Evaluation,
    "Checkpoints": training.Checkpoints,
}
"""The parts that a document has in one form only, by the title of their section."""

Command = tuple[tuple[str, ...], Any]
"""The words that call a command, and the command."""

METHODS = {
    "Model": (
        "load",
        "recommend",
        "similar",
        "explain",
        "predict",
        "evaluate",
        "attributes_of",
        "fingerprint",
    ),
    "Dataset": ("open", "rows", "sparse", "dense", "weights", "ids", "rows_of", "counts", "vocabulary"),
    "Neighbours": ("of", "of_model", "search", "vectors"),
    "BatchedNeighbours": ("nearest",),
    "SparseBatch": ("from_lists",),
}
"""The methods that users call, by class."""
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Warns", "Raises")
"""The sections of a docstring."""

SINGULAR = {"Losses": "loss"}
NAME = (r"^[^/\\\x00-\x1f]+$", 1, 100)
TYPES = {str: "text", int: "whole number", float: "number", Path: "path"}


def main(arguments: list[str]) -> int:
    """Write every page, or with --check say which are stale; gives the exit status."""
    if arguments not in ([], ["--check"]):
        print("usage: python docs/generate.py [--check]", file=sys.stderr)
        return 2
    stale = stale_pages(DOCS)
    for path in stale:
        if arguments:
            print(f"{path} is stale. Run `make docs`.", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(pages()[path.relative_to(DOCS).as_posix()], encoding="utf-8")
            print(f"wrote {path}")
    return 1 if arguments and stale else 0


def stale_pages(folder: Path) -> list[Path]:
    """The generated pages that are missing in a folder, or that are not what the code gives."""
    found = {folder / name: text for name, text in pages().items()}
    return [
        path for path, text in found.items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


@cache
def pages() -> Mapping[str, str]:
    """The text of every generated page, by its path in docs/; all callers get the same."""
    own = {
        "network-documents.md": documents_page(),
        "python-reference.md": python_page(),
        "errors.md": errors_page(),
    }
    return MappingProxyType(own | command_pages())


def introduced(page: str) -> list[str]:
    """The first lines of a page, which stand in docs/templates."""
    return [NOTICE, "", (DOCS / "templates" / page).read_text(encoding="utf-8").rstrip()]


def documents_page() -> str:
    """The reference of network.json and training.json."""
    lines = introduced("network-documents.md")
    lines += section("## Network", network.NetworkSpec)
    lines += ["", "## Fields of several layers", *table(list(shared_fields()))]
    for title, model in NETWORK_PARTS.items():
        if model is not network.NetworkSpec:
            lines += section(f"## {title}", model)
    for title in ("Activations", "Pooling functions", "Losses", "Samples", "Initializers"):
        lines += group(title)
    for title, model in TRAINING_PARTS.items():
        lines += section(f"## {title}", model)
    for title in ("Optimizers", "Schedules"):
        lines += group(title)
    return "\n".join(lines) + "\n"


def group(title: str) -> list[str]:
    """The lines of a choice: one section a kind."""
    lines = ["", f"## {title}"]
    for model in get_args(GROUPS[title]):
        kinds = ", ".join(f"`{kind}`" for kind in get_args(model.model_fields["kind"].annotation))
        lines += section(f"### {kinds}", model)
    return lines


def section(heading: str, model: type[BaseModel]) -> list[str]:
    """The lines of one part of a document: its docstring, and a table of its fields.

    The heading tells the kind; what several layers have stands in a table of its own.
    """
    text = " ".join((model.__doc__ or "").split())
    shared = shared_fields()
    named = [row for row in rows(model) if row in shared and model in shared[row]]
    lines = ["", heading, "", text]
    if model in get_args(layers.Layer):
        kind = json.dumps(get_args(model.model_fields["kind"].annotation)[0])
        others = ", ".join(row.split(" |")[0].removeprefix("| ") for row in named)
        lines += ["", f'`"kind": {kind}`. It also has [the fields](#fields-of-several-layers) {others}.']
    return lines + table([row for row in rows(model) if row not in named])


def table(found: list[str]) -> list[str]:
    """The table of some fields; no lines without any."""
    return ["", "| field | allowed | default | meaning |", "|---|---|---|---|", *found] if found else []


def rows(model: type[BaseModel]) -> list[str]:
    """A row for each field of a part of a document but its kind."""
    schema = model.model_json_schema()
    found = schema.get("properties") or schema["$defs"][model.__name__]["properties"]
    return [
        f"| `{name}` | {allowed(found[name])} | {default(model, name)} | {cell(meaning(model, name))} |"
        for name in model.model_fields
        if name != "kind"
    ]


@cache
def shared_fields() -> Mapping[str, list[type[BaseModel]]]:
    """The rows that several kinds of layers have in common, one a name, each with these kinds."""
    found: dict[str, dict[str, list[type[BaseModel]]]] = {}
    for model in get_args(layers.Layer):
        for row in rows(model):
            found.setdefault(row.split(" |")[0], {}).setdefault(row, []).append(model)
    most = [max(forms.items(), key=lambda form: len(form[1])) for forms in found.values()]
    return MappingProxyType({row: models for row, models in most if len(models) > 1})


def meaning(model: type[BaseModel], name: str) -> str:
    """What a field means: the docstring below it."""
    return " ".join((model.model_fields[name].description or "").split())


def cell(text: str) -> str:
    """Text that may stand in a cell of a table."""
    return text.replace("|", "\\|")


def default(model: type[BaseModel], name: str) -> str:
    """What a field is where the document does not say."""
    value = model.model_fields[name].default
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "unset"
    if isinstance(value, BaseModel):
        short = value.model_dump(mode="json", exclude_defaults=True)
        value = short["kind"] if list(short) == ["kind"] else short
    return f"`{json.dumps(value)}`"


def allowed(schema: Mapping[str, Any]) -> str:
    """What a field may be, from its JSON Schema."""
    if "anyOf" in schema:
        choice = linked(frozenset(references(schema)))
        if choice is not None:
            return choice
        return ", or ".join(
            dict.fromkeys(allowed(each) for each in schema["anyOf"] if each.get("type") != "null")
        )
    if "$ref" in schema or "allOf" in schema or "oneOf" in schema:
        choices = ", or ".join(
            dict.fromkeys(allowed(each) for each in schema.get("oneOf", ()) if "$ref" not in each)
        )
        return linked(frozenset(references(schema))) or choices or "object"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if schema["type"] == "array":
        each = allowed(schema["items"])
        inner = linked(frozenset(references(schema))) or (
            each.replace("number", "numbers") if "number" in each else f"{each}s"
        )
        return f"list of {inner}"
    if schema["type"] == "string":
        return text_allowed(schema)
    kind = {"boolean": "`true` or `false`", "integer": "whole number", "number": "number"}[schema["type"]]
    low = next(
        (
            f"{bound(schema[key])} {sign} "
            for key, sign in (("minimum", "<="), ("exclusiveMinimum", "<"))
            if key in schema
        ),
        "",
    )
    high = next(
        (
            f" {sign} {bound(schema[key])}"
            for key, sign in (("maximum", "<="), ("exclusiveMaximum", "<"))
            if key in schema
        ),
        "",
    )
    return f"{low}{kind}{high}"


def text_allowed(schema: Mapping[str, Any]) -> str:
    """What some text may be; the introduction says what a name is."""
    if not {"pattern", "minLength"} <= schema.keys():
        return "text"
    assert (
        schema["pattern"],
        schema["minLength"],
        schema["maxLength"],
    ) == NAME, "say in words what the text may be"
    return "name"


def bound(number: float) -> str:
    """A limit, in the shortest form."""
    for power in (20, 31, 63):
        if number in (2**power, 2**power - 1):
            return f"2^{power}" + (" - 1" if number == 2**power - 1 else "")
    return json.dumps(int(number) if number == int(number) else number)


def references(schema: Any) -> Iterator[str]:
    """The names of the specs that a part of a JSON Schema refers to."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for key, inner in schema.items():
            if key != "discriminator":
                yield from references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from references(inner)


def linked(names: frozenset[str]) -> str | None:
    """A link to the section of some specs; None where they have no section of their own."""
    for title, union in GROUPS.items():
        if names == {model.__name__ for model in get_args(union)}:
            return f"[{SINGULAR.get(title, title[:-1].lower())}](#{title.lower().replace(' ', '-')})"
    if names == {model.__name__ for model in get_args(layers.Layer)}:
        return ", ".join(f"[{kind}](#{kind}-layers)" for kind in kinds(layers.Layer)) + " layers"
    for title, model in {**NETWORK_PARTS, **TRAINING_PARTS}.items():
        if names == {model.__name__}:
            return f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
    return None


def python_page() -> str:
    """The reference of `import widenet`: what docstrings say."""
    names = sorted(widenet.__all__, key=str.lower)
    lines = [*introduced("python-reference.md"), "", "| name | what it is |", "|---|---|"]
    lines += [
        f"| [`{name}`](#{name.lower()}) | {cell(paragraph(docstring(getattr(widenet, name))[0]))} |"
        for name in names
    ]
    for name in names:
        found = getattr(widenet, name)
        lines += ["", f"## {name}", *described(found)]
        for method in METHODS.get(name, ()):
            lines += ["", f"### {name}.{method}", *described(getattr(found, method))]
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    """The page of all exceptions."""
    lines = [*introduced("errors.md"), "", "| exception | meaning |", "|---|---|"]
    for name, found in vars(errors).items():
        if inspect.isclass(found) and issubclass(found, Exception):
            text = re.split(r"^Args:\n", inspect.getdoc(found) or "", flags=re.MULTILINE)[0]
            lines.append(f"| `{name}` | {cell(paragraph(text))} |")
    return "\n".join(lines) + "\n"


def docstring(found: Any) -> list[str]:
    """The paragraphs of a docstring."""
    return (inspect.getdoc(found) or "").split("\n\n")


def described(found: Any) -> Iterator[str]:
    """What a docstring says, with arguments as a table."""
    text, *rest = re.split(rf"^({'|'.join(SECTIONS)}):\n", inspect.getdoc(found) or "", flags=re.MULTILINE)
    yield from ("", call_of(found), "", text.strip())
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        if title == "Args":
            order = list(inspect.signature(found).parameters)
            yield from ("", "| argument | default | meaning |", "|---|---|---|")
            for name, told in sorted(entries(body), key=lambda entry: order.index(entry[0].lstrip("*"))):
                yield f"| `{name}` | {default_argument(found, name)} | {cell(told)} |"
        elif title == "Attributes":
            yield from ("", "| attribute | meaning |", "|---|---|")
            yield from (f"| `{name}` | {cell(told)} |" for name, told in entries(body))
        elif title == "Raises":
            raised = "; ".join(f"`{name}`: {told.rstrip('.')}" for name, told in entries(body))
            yield from ("", f"Raises {raised}.")
        elif title != "Warns":
            yield from ("", f"{title}: {paragraph(body)}")


def call_of(found: Callable[..., Any]) -> str:
    """How a function is called: the arguments that it needs, or else its first two, and if there are more."""
    if inspect.isclass(found):
        return f"`class {found.__name__}`"
    named = [each for each in inspect.signature(found).parameters.values() if each.name != "self"]
    needed = [each.name for each in named if each.default is inspect.Parameter.empty]
    needed = needed or [each.name for each in named[:2]]
    return f"`{found.__name__}({', '.join(needed + ['...'] * (len(needed) < len(named)))})`"


def default_argument(found: Callable[..., Any], name: str) -> str:
    """The default of an argument as Python writes it; empty without one."""
    parameter = inspect.signature(found).parameters.get(name)
    if parameter is None or parameter.default is inspect.Parameter.empty or inspect.isclass(found):
        return ""
    return f"`{parameter.default!r}`"


def entries(body: str) -> list[tuple[str, str]]:
    """The names in a section of a docstring, each with its meaning in one line."""
    joined = re.sub(r"\n {5,}", " ", body)
    found = (line.strip().partition(": ") for line in joined.splitlines() if line.strip())
    return [(name, told) for name, _, told in found]


def command_pages() -> dict[str, str]:
    """The reference of the command line: a page with the list of commands, and a page for each."""
    root: Any = typer.main.get_command(app)
    commands = [each for each in walk(root, ("widenet",)) if not hasattr(each[1], "commands")]
    lines = introduced("command-line.md")
    for title, names in command_groups(commands).items():
        lines += ["", f"## {title}", "", "| command | what it does |", "|---|---|"]
        lines += [
            f"| [`{' '.join(path)}`]({page_of(path)}) | {cell(first_sentence(paragraph(command.help)))} |"
            for path, command in names
        ]
    lines += ["", "## Options of every command", "", *option_table(root)]
    return {"command-line.md": "\n".join(lines) + "\n"} | {
        page_of(path): command_page(path, command) for path, command in commands
    }


def command_groups(commands: list[Command]) -> dict[str, list[Command]]:
    """The commands by what they are for, in the order of `--help`."""
    found: dict[str, list[Command]] = {}
    for path, command in commands:
        own = next((title for title, names in COMMAND_GROUPS.items() if path[1] in names), "")
        title = own if len(path) == 2 else f"`{' '.join(path[:-1])}`"
        found.setdefault(title, []).append((path, command))
    return found


def page_of(path: tuple[str, ...]) -> str:
    """The file of the page of a command, from docs/."""
    return f"commands/{'-'.join(path[1:])}.md"


def first_sentence(text: str) -> str:
    """The text up to its first full stop."""
    return text.partition(". ")[0].rstrip(".") + "."


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and all below it, each with the words that call it."""
    command = getattr(command, "whole", command)
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*path, name))


def command_page(path: tuple[str, ...], command: Any) -> str:
    """The page of one command: help, usage, what is told of it beside the code, arguments, options."""
    lines = [NOTICE, "", f"# {' '.join(path)}", "", paragraph(command.help)]
    lines += ["", "```text", usage(path, command), "```"]
    of_command, of_group = (DOCS / "templates" / page for page in (page_of(path), page_of(path[:2])))
    told = next((each for each in (of_command, of_group) if each.is_file()), None)
    if told is not None:
        lines += ["", told.read_text(encoding="utf-8").rstrip()]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    if arguments:
        lines += ["", "## Arguments", "", "| argument | allowed | meaning |", "|---|---|---|"]
        lines += [
            f"| `{argument_name(each)}` | {taken(command, each)} | {cell(paragraph(each.help))} |"
            for each in arguments
        ]
    options = option_table(command)
    return "\n".join([*lines, *(["", "## Options", "", *options] if options else [])]) + "\n"


def option_table(command: Any) -> list[str]:
    """The table of a command's options; no lines where it has none."""
    rows = [
        f"| {', '.join(f'`{name}`' for name in (*each.opts, *each.secondary_opts))} |"
        f" {taken(command, each)} | {option_default(each)} | {cell(paragraph(each.help))} |"
        for each in command.params
        if each.param_type_name == "option"
    ]
    return ["| option | allowed | default | meaning |", "|---|---|---|---|", *rows] if rows else []


def paragraph(text: str | None) -> str:
    """A help text in one line."""
    return " ".join((text or "").split())


def usage(path: tuple[str, ...], command: Any) -> str:
    """The shape of a command line: required options are shown, others are [OPTIONS]."""
    words = list(path)
    for each in command.params:
        if each.param_type_name == "argument":
            name = argument_name(each)
            words.append(name if each.required else f"[{name}]")
    words += [
        f"{each.opts[0]} {each.name.upper()}"
        for each in command.params
        if each.param_type_name == "option" and each.required
    ]
    words.append("[OPTIONS]")
    return " ".join([*words, "COMMAND ..."] if hasattr(command, "commands") else words)


def argument_name(argument: Any) -> str:
    """An argument as usage lines show it."""
    name: str = argument.metavar or argument.name.upper()
    return f"{name}..." if argument.nargs == -1 else name


def taken(command: Any, parameter: Any) -> str:
    """What an argument or an option takes, from the annotation of the command's function."""
    if getattr(parameter, "is_flag", False):
        return "flag"
    annotation, *details = get_args(get_type_hints(command.callback, include_extras=True)[parameter.name])
    plain = annotation
    if get_origin(annotation) is not Literal:
        plain = next((each for each in get_args(annotation) if each is not type(None)), annotation)
    several = getattr(annotation, "__origin__", None) is list or getattr(plain, "__origin__", None) is list
    kind = get_args(plain)[0] if getattr(plain, "__origin__", None) is list else plain
    if get_origin(kind) is Literal:
        words = " or ".join(f"`{value}`" for value in get_args(kind))
    elif issubclass(kind, Enum):
        words = " or ".join(f"`{member.value}`" for member in kind)
    else:
        low = next((each.min for each in details if getattr(each, "min", None) is not None), None)
        words = TYPES[kind] + ("" if low is None else f", at least {low}")
    return f"{words}; several" if several else words


def option_default(option: Any) -> str:
    """What an option is where the command line does not say."""
    if option.required:
        return "required"
    value = option.default.value if isinstance(option.default, Enum) else option.default
    return "" if value is None or value is False else f"`{value}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`widenet recommend`."""

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widenet.cli.declared import Device, IncludeSeen, Run, values_of, with_flags_of
from widenet.cli.model import warnings_as_sentences
from widenet.cli.output import AsJson, print_json
from widenet.errors import OptionError
from widenet.runs.run_arguments import RecommendArguments

if TYPE_CHECKING:
    from widenet.runs import Model, Recommendation

_Field = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=VALUE",
        help="A further field of the user, such as country=NL or age=0.34; may be given several times.",
    ),
]
_Attributes = Annotated[
    str | None, typer.Option(help="Attributes of the items to print, such as genre,in_stock.")
]
_Explain = Annotated[
    bool, typer.Option("--explain", help="Also print which items of the history add most to each score.")
]
_SHOWN = 20
"""Largest number of titles of a history to print."""


@with_flags_of(RecommendArguments)
def recommend(
    context: typer.Context,
    run: Run,
    more: Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="Further items.")] = None,
    field: _Field = None,
    user: Annotated[str | None, typer.Option(help="The id of a user, instead of items.")] = None,
    include_seen: IncludeSeen = False,
    attributes: _Attributes = None,
    explain: _Explain = False,
    as_json: AsJson = False,
    device: Device = None,
    **words: Any,
) -> None:
    """Recommend items to a new user or to one of a dataset.

    Example: widenet recommend RUN --items "The Hobbit" "Emma" -k 10.

    The named items, or those that the user has, are left out, unless you add --include-seen.
    If the network reads a sequence, the order of the items counts: name the newest last.
    """
    from widenet.cli.output import recommendations_table
    from widenet.training.run_path import check_run

    typed = context.obj or sys.argv[1:]
    items = _in_typed_order(typed, words["items"] or [], more or [], _flags_with_values(context))
    k, output, data = words["k"], words["output"], words["data"]
    _check_options(user, items, data, field, explain)
    rules = values_of(RecommendArguments, words)
    RecommendArguments(**rules)
    names = [] if attributes is None else attributes.split(",")
    check_run(run)
    from widenet.parallel.group import is_leader  # loads torch, as the next
    from widenet.runs import Model

    model = Model.load(run, device)
    fields = _fields(model, field or [])
    shown: dict[str, Any] = {"k": k, "fields": fields, "exclude_seen": not include_seen, "output": output}
    shown |= {name: rules[name] for name in ("never", "only", "weights", "at_most", "where", "diversity")}
    who: dict[str, Any] = {"items": items} if user is None else {"data": data}
    with warnings_as_sentences():
        rows = model.recommend(**who, users=user, **shown)
        reasons = (
            [model.explain(row.item, **who, user=user, output=output) for row in rows] if explain else None
        )
    had = None if user is None else model.history_of(user, data)
    if not is_leader():
        return
    own = model.attributes_of([row.item for row in rows], names, output) if names else None
    if as_json:
        print_json(_facts(rows, own, reasons))
        return
    known = model.understood(items, fields, output) if items or fields else {}
    typer.echo(
        _inputs(model, known)
        if had is None
        else f"For {user} with: {_listed(had, _reads_sequence(model))}{_replaced_fields(known)}",
        err=True,
    )
    typer.echo(recommendations_table(rows, own, reasons))


def _in_typed_order(
    words: Sequence[str], named: Sequence[str], more: Sequence[str], options: Collection[str]
) -> list[str]:
    """Return the items of --items and those without a flag in the order of the command line.

    Args:
        words: The command line, after `widenet`.
        named: The items of --items.
        more: The items without a flag.
        options: The flags whose next word is their value.
    """
    first, rest = list(named), list(more)
    items = []
    flag, is_run_read = "", False
    start = words.index("recommend") + 1 if "recommend" in words else 0
    for word in words[start:]:
        if first and (flag == "--items" or word.startswith("--items=")):
            items.append(first.pop(0))
        elif not flag and not is_run_read:
            is_run_read = not word.startswith("-")
        elif not flag and rest and word == rest[0]:
            items.append(rest.pop(0))
        flag = word if not flag and word in options else ""
    return [*items, *first, *rest]


def _flags_with_values(context: typer.Context) -> set[str]:
    options = [option for option in context.command.params if option.param_type_name == "option"]
    return {flag for option in options if not getattr(option, "is_flag", False) for flag in option.opts}


def _check_options(
    user: str | None, items: list[str], data: Path | None, field: list[str] | None, explain: bool
) -> None:
    """Raise OptionError for options that do not go together."""
    if user is not None and items:
        raise OptionError("excludes items", option="user")
    if user is None and data is not None:
        raise OptionError("needs user", option="data")
    if user is None and not items and not field:
        raise OptionError("must name at least one item", option="items")
    if explain and field:
        raise OptionError("is for networks that read items alone", option="explain")


def _facts(
    rows: "list[Recommendation]",
    attributes: list[dict[str, Any]] | None,
    reasons: "list[list[Recommendation]] | None",
) -> list[dict[str, Any]]:
    """The rows as JSON has them, with attributes and reasons if they were asked for."""
    from dataclasses import asdict

    facts = [asdict(row) for row in rows]
    if attributes is not None:
        facts = [row | {"attributes": own} for row, own in zip(facts, attributes, strict=True)]
    if reasons is not None:
        listed = [[asdict(each) for each in own] for own in reasons]
        facts = [row | {"because": own} for row, own in zip(facts, listed, strict=True)]
    return facts


def _fields(model: "Model", texts: list[str]) -> dict[str, list[Any]]:
    """Read the options --field: by field its names, or the comma-separated numbers of a dense field."""
    fields_by_name: dict[str, list[Any]] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value:
            raise OptionError("must be FIELD=VALUE", option="field", value=text)
        values: list[Any] = [value]
        if name in model.run.fields and model.run.fields[name].kind == "dense":
            try:
                values = [float(number) for number in value.split(",")]
            except ValueError:
                raise OptionError("must be numbers", option="field", value=text) from None
        fields_by_name[name] = [*fields_by_name.get(name, []), *values]
    return fields_by_name


def _inputs(model: "Model", known: dict[str, list[str]]) -> str:
    """The inputs of the network for a new user, a line for each field that it reads."""
    read = list(dict.fromkeys(layer.field for layer in model.run.network.inputs))
    first, *others = [name for name in known if name in read] + [name for name in read if name not in known]
    label = "" if not others else f" {first}"
    lines = [f"For somebody with{label}: {_listed(known.get(first, []), _reads_sequence(model))}"]
    return "\n".join(lines + [f"  {name}: {_listed(known.get(name, []))}" for name in others])


def _replaced_fields(known: dict[str, list[str]]) -> str:
    """Return lines for the fields that replace those of the dataset."""
    return "".join(f"\n  {name}, as given: {_listed(names)}" for name, names in known.items())


def _reads_sequence(model: "Model") -> bool:
    return any(model.run.fields[layer.field].kind == "sequence" for layer in model.run.network.inputs)


def _listed(names: list[str], is_sequence: bool = False) -> str:
    """Return names, if they are many the first ones, or the newest ones of a sequence."""
    more = max(0, len(names) - _SHOWN)
    if is_sequence:
        return (f"{more:,} earlier; " if more else "") + "; ".join(names[more:]) or "nothing"
    return "; ".join(names[:_SHOWN]) + (f" and {more:,} more" if more else "") or "nothing"

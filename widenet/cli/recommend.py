"""`widenet recommend`."""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widenet.cli.declared import with_flags_of
from widenet.cli.model import warn
from widenet.cli.options import Device, IncludeSeen, Run
from widenet.run_arguments import RecommendArguments

if TYPE_CHECKING:
    from widenet.runs import Model

_Field = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=VALUE",
        help="What else is known, such as country=NL or age=0.34; may be given several times.",
    ),
]
_SHOWN = 20
"""Titles of a history that are shown."""


@with_flags_of(RecommendArguments)
def recommend(
    run: Run,
    more: Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="Further items.")] = None,
    field: _Field = None,
    user: Annotated[str | None, typer.Option(help="The id of a user of --data, in place of items.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The dataset directory of --user: what the user has, and is not shown."),
    ] = None,
    include_seen: IncludeSeen = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
    device: Device = None,
    **words: Any,
) -> None:
    """Recommend items to somebody who liked some, or to a user: widenet recommend RUN --items "The Hobbit"
    "Emma" -k 10.

    The items that are named, or that the user has, are left out; --include-seen lets them appear.
    """
    from dataclasses import asdict

    from widenet.cli.tables import recommendations_table
    from widenet.errors import OptionError
    from widenet.parallel.group import is_leader
    from widenet.runs import Model

    items, k, output = [*(words["items"] or []), *(more or [])], words["k"], words["output"]
    if (user is None) != (data is None) or (user is not None and items):
        raise OptionError(
            "--user and --data go together, without items: one user of a dataset. Give both, or items alone."
        )
    if user is None and not items and not field:
        raise OptionError('name at least one item, such as --items "The Hobbit".')
    model = Model.load(run, device)
    warn(model.caveats())
    fields = _fields(model, field or [])
    if items or fields:
        warn(model.doubts(items, fields, output))
    shown: dict[str, Any] = {"k": k, "fields": fields, "exclude_seen": not include_seen, "output": output}
    if user is not None and data is not None:
        warn(model.ignored(data))
        found, had = model.recommend_for(user, data, **shown), model.history_of(user, data)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said already
            found, had = model.recommend(items, **shown), None
    if not is_leader():
        return
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in found], ensure_ascii=False))
        return
    known = model.understood(items, fields, output) if items or fields else {}
    typer.echo(
        _told(model, known) if had is None else f"For {user} with: {_listed(had)}{_instead(known)}", err=True
    )
    typer.echo(recommendations_table(found))


def _fields(model: "Model", texts: list[str]) -> dict[str, list[Any]]:
    """What the options --field say, by field: names, or of a dense field the numbers between commas."""
    from widenet.errors import OptionError

    said: dict[str, list[Any]] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value:
            raise OptionError(f'--field must be FIELD=VALUE, such as country=NL; got "{text}".')
        values: list[Any] = [value]
        if name in model.run.fields and model.run.fields[name].kind == "dense":
            try:
                values = [float(number) for number in value.split(",")]
            except ValueError:
                raise OptionError(
                    f'--field {name} takes numbers, with commas between them; got "{value}".'
                ) from None
        said[name] = [*said.get(name, []), *values]
    return said


def _told(model: "Model", known: dict[str, list[str]]) -> str:
    """What the network is told of somebody new: a line, and one for each further field, also where nothing
    is known of it.
    """
    read = list(dict.fromkeys(layer.field for layer in model.run.network.inputs))
    first, *others = [name for name in known if name in read] + [name for name in read if name not in known]
    label = "" if not others else f" {first}"
    lines = [f"For somebody with{label}: {_listed(known.get(first, []))}"]
    return "\n".join(lines + [f"  {name}: {_listed(known.get(name, []))}" for name in others])


def _instead(known: dict[str, list[str]]) -> str:
    """What was given in place of what a dataset has."""
    return "".join(f"\n  {name}, as given: {_listed(names)}" for name, names in known.items())


def _listed(names: list[str]) -> str:
    return (
        "; ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
        or "nothing"
    )

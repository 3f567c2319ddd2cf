"""Which words of the command line may be URIs of object stores; all other paths must be local."""

from pathlib import Path
from typing import Any

from widenet.stores.uri import check_known_scheme, check_local

_IN_STORES = {
    "compare": {"first", "second", "data"},
    "data describe": {"source"},
    "data ingest": {"out", "vocabulary"},
    "data split": {"source", "out"},
    "data verify": {"source"},
    "evaluate": {"run", "data"},
    "fingerprint": {"run"},
    "plan": {"data"},
    "predict": {"run", "data", "out"},
    "recommend": {"run", "data"},
    "report": {"runs", "data"},
    "train": {"data", "out", "start_from"},
    "tune": {"data"},
}
"""The paths of each command that may be URIs. Sources of an ingest are texts, which are checked later."""


def refuse_uris(command: Any, name: str) -> None:
    """Let every path of a command, and of those below it, be refused if it is a URI and must be local."""
    for below, each in getattr(command, "commands", {}).items():
        refuse_uris(each, f"{name} {below}")
    for parameter in command.params:
        check = check_known_scheme if parameter.name in _IN_STORES.get(name, ()) else check_local
        shown = parameter.metavar or parameter.name.upper()
        shown = f"`{parameter.name}`" if parameter.param_type_name == "option" else shown
        parameter.process_value = _checked(shown, parameter.process_value, check)


def _checked(name: str, process: Any, check: Any) -> Any:
    def checked(context: Any, word: Any) -> Any:
        value = process(context, word)
        for path in value if isinstance(value, list | tuple) else [value]:
            if isinstance(path, Path):
                check(name, path)
        return value

    return checked

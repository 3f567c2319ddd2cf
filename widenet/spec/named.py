"""A choice among kinds, written as a bare name where its defaults do: "tanh" for {"kind": "tanh"}."""

from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Discriminator, GetJsonSchemaHandler, WrapSerializer
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class _NamesInSchema:
    """Tells editors that the bare names are welcome too."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"enum": self.names, "type": "string"}, handler(core)]}


def _expanded(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _shortened(value: Any, handler: Any) -> Any:
    full = handler(value)
    return full["kind"] if isinstance(full, dict) and list(full) == ["kind"] else full


def kinds(specs: Any) -> list[str]:
    """Return the kinds of a spec, or of a union of specs in its order."""
    members = get_args(specs) or (specs,)
    return [kind for spec in members for kind in get_args(spec.model_fields["kind"].annotation)]


def named(union: Any) -> Any:
    """Return the field type of a union of specs that `kind` tells apart."""
    choice = Annotated[union, Discriminator("kind")]
    return Annotated[
        choice, BeforeValidator(_expanded), WrapSerializer(_shortened), _NamesInSchema(kinds(union))
    ]

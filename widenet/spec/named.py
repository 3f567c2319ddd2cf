"""A choice among kinds, written as a bare name where its defaults do: "tanh" for {"kind": "tanh"}."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, GetJsonSchemaHandler, WrapSerializer
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class _NamesInSchema:
    """Tells editors that the bare names are welcome too."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"enum": list(self.names), "type": "string"}, handler(core)]}


def _expanded(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _shortened(value: Any, handler: Any) -> Any:
    full = handler(value)
    return full["kind"] if isinstance(full, dict) and list(full) == ["kind"] else full


def named(union: Any, *names: str) -> Any:
    """The field type of a union of specs told apart by `kind`; `names` are all its kinds, in documentation
    order.
    """
    choice = Annotated[union, Discriminator("kind")]
    return Annotated[choice, BeforeValidator(_expanded), WrapSerializer(_shortened), _NamesInSchema(names)]

"""The OpenAPI document of a service."""

import inspect
import re
from typing import Any

import msgspec

from widenet.serve import requests as messages
from widenet.serve.requests import (
    LISTS,
    LONGEST_SEARCH,
    About,
    Answer,
    Answers,
    Bounds,
    Explain,
    Finding,
    Load,
    RecommendMany,
    Refusal,
    Score,
    Similar,
)

_TYPES = (RecommendMany, Score, Similar, Explain, Load, Answer, Answers, Finding, About, Refusal)
_REFERENCE = "#/components/schemas/{name}"
_SEARCH = [
    {
        "name": "search",
        "in": "query",
        "required": True,
        "description": "A part of a title, or the beginning of an id.",
        "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_SEARCH},
    },
    {
        "name": "attributes",
        "in": "query",
        "description": "Attributes of the items to return, with commas between them.",
        "schema": {"type": "string"},
    },
]
"""The parameters of a search."""
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
"""A field of a docstring of Google's style: its name and sentences."""


def document(bounds: Bounds, with_load: bool, with_token: bool) -> dict[str, Any]:
    """Return the OpenAPI document.

    Args:
        bounds: What a request may ask for.
        with_load: Whether runs may be loaded by name.
        with_token: Whether requests need the token.
    """
    _, components = msgspec.json.schema_components(_TYPES, ref_template=_REFERENCE)
    _limit(components, bounds)
    _describe(components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "widenet",
            "version": "1",
            "description": (
                f"Lists hold at most {bounds.max_items:,} entries, k is at most {bounds.max_k:,}, and a body"
                f" holds at most {bounds.max_rows:,} requests."
            ),
        },
        "security": [{"token": []}] if with_token else [],
        "paths": _paths(with_load),
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths(with_load: bool) -> dict[str, Any]:
    """Return what each route takes and answers."""
    answer, basket = _of(Answer), ["1", "2"]
    found = {"oneOf": [answer, _of(Answers)]}
    several = "Items for a basket, for a user, or for several of them."
    shares = "What each item of a history adds to the logit of an item, if the network is linear."
    paths: dict[str, Any] = {
        "/v1/recommend": _post(several, RecommendMany, {"items": basket, "k": 10}, found),
        "/v1/score": _post(
            "Scores of some items.", Score, {"items": basket, "candidates": ["3", "4"]}, answer
        ),
        "/v1/similar": _post("Items most similar to one.", Similar, {"item": "1"}, answer),
        "/v1/explain": _post(shares, Explain, {"items": basket, "item": "3"}, answer),
        "/v1/items": {"get": _operation("Items by id or title.", _of(Finding)) | {"parameters": _SEARCH}},
        "/v1/model": {"get": _operation("The model that answers.", _of(About))},
    }
    for path, summary in (
        ("/health/live", "Whether the process answers."),
        ("/health/ready", "Whether the model answers."),
    ):
        paths[path] = {"get": _operation(summary, {"type": "object"}) | {"security": []}}
    if with_load:
        paths["/v1/admin/load"] = _post("Serve another run.", Load, {"run": "books"}, {"type": "object"})
    return paths


def _limit(components: dict[str, Any], bounds: Bounds) -> None:
    """Say in the schemas of requests what `bounds` refuses."""
    limits = {
        "k": {"minimum": 1, "maximum": bounds.max_k},
        "candidates": {"minItems": 1, "maxItems": bounds.max_k},
        "requests": {"minItems": 1, "maxItems": bounds.max_rows},
        **{name: {"maxItems": bounds.max_items} for name in LISTS},
        "weights": {"maxProperties": bounds.max_items},
        "diversity": {"minimum": 0, "maximum": 1},
    }
    for name in ("Recommend", "RecommendMany", "Score", "Similar", "Explain"):
        for field, limit in limits.items():
            of_field = components[name]["properties"].get(field, {})
            for each in of_field.get("anyOf", [of_field]):
                if each.get("type") in ("array", "integer", "number", "object"):
                    each.update(limit)


def _describe(components: dict[str, Any]) -> None:
    """Describe messages and their fields by the docstrings of their classes."""
    for name, component in components.items():
        for kind in reversed(getattr(messages, name).__mro__[:-1]):
            summary, _, attributes = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:\n")
            component["description"] = " ".join(summary.split())
            for field, sentence in _ATTRIBUTE.findall(attributes):
                if field in component["properties"]:
                    component["properties"][field]["description"] = " ".join(sentence.split())


def _of(kind: type) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}


def _post(summary: str, body: type, example: Any, answer: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": _of(body), "example": example}}
    return {"post": _operation(summary, answer) | {"requestBody": {"required": True, "content": content}}}


def _operation(summary: str, answer: Any) -> dict[str, Any]:
    def content(schema: Any) -> dict[str, Any]:
        return {"application/json": {"schema": schema}}

    return {
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": content(answer)},
            "default": {"description": "Why there is no answer.", "content": content(_of(Refusal))},
        },
    }

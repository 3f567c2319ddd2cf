"""The OpenAPI document of a service."""

from typing import Any

import msgspec

from widenet.serve.messages import (
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


def document(bounds: Bounds, with_load: bool, with_token: bool) -> dict[str, Any]:
    """Return the OpenAPI document.

    Args:
        bounds: What a request may ask for.
        with_load: Whether runs may be loaded by name.
        with_token: Whether requests need the token.
    """
    schemas, components = msgspec.json.schema_components(_TYPES, ref_template=_REFERENCE)
    _limit(components, bounds)
    of = dict(zip(_TYPES, schemas, strict=True))
    paths: dict[str, Any] = {
        "/v1/recommend": _post(
            "Items for a basket, for a user, or for several of them.",
            of[RecommendMany],
            {"oneOf": [of[Answer], of[Answers]]},
            of[Refusal],
        ),
        "/v1/score": _post("Scores of some items.", of[Score], of[Answer], of[Refusal]),
        "/v1/similar": _post("Items most similar to one.", of[Similar], of[Answer], of[Refusal]),
        "/v1/explain": _post(
            "What each item of a history adds to the logit of an item.", of[Explain], of[Answer], of[Refusal]
        ),
        "/v1/items": {
            "get": _operation("Items by id or title.", of[Finding], of[Refusal])
            | {
                "parameters": [
                    {
                        "name": "search",
                        "in": "query",
                        "required": True,
                        "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_SEARCH},
                    },
                    {"name": "attributes", "in": "query", "schema": {"type": "string"}},
                ]
            }
        },
        "/v1/model": {"get": _operation("The model that answers.", of[About], of[Refusal])},
    }
    for path, summary in (
        ("/health/live", "Whether the process answers."),
        ("/health/ready", "Whether the model answers."),
    ):
        paths[path] = {"get": _operation(summary, {"type": "object"}, of[Refusal]) | {"security": []}}
    if with_load:
        paths["/v1/admin/load"] = _post("Serve another run.", of[Load], {"type": "object"}, of[Refusal])
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
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _limit(components: dict[str, Any], bounds: Bounds) -> None:
    """Say in the schemas of requests what `bounds` refuses."""
    limits = {
        "k": {"minimum": 1, "maximum": bounds.max_k},
        "candidates": {"minItems": 1, "maxItems": bounds.max_k},
        "requests": {"minItems": 1, "maxItems": bounds.max_rows},
        **{name: {"maxItems": bounds.max_items} for name in ("items", "values", "never", "only")},
        "diversity": {"minimum": 0, "maximum": 1},
    }
    for name in ("Recommend", "RecommendMany", "Score", "Similar", "Explain"):
        for field, limit in limits.items():
            of_field = components[name]["properties"].get(field, {})
            for each in of_field.get("anyOf", [of_field]):
                if each.get("type") in ("array", "integer", "number"):
                    each.update(limit)


def _post(summary: str, body: Any, answer: Any, refusal: Any) -> dict[str, Any]:
    request = {"required": True, "content": {"application/json": {"schema": body}}}
    return {"post": _operation(summary, answer, refusal) | {"requestBody": request}}


def _operation(summary: str, answer: Any, refusal: Any) -> dict[str, Any]:
    def content(schema: Any) -> dict[str, Any]:
        return {"application/json": {"schema": schema}}

    return {
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": content(answer)},
            "default": {"description": "Why there is no answer.", "content": content(refusal)},
        },
    }

"""What a model is asked before it serves, so that no request waits until code is compiled or imported."""

from itertools import islice
from typing import Any

import torch

from widenet.serve.messages import About, Ask, Explain, FieldValue, Recommend, Score
from widenet.serve.people import People

_FEATURES = 5


def sample_of(people: People) -> dict[str, FieldValue]:
    """Return a small input: a few features of each field, or numbers between 0 and 1."""
    sample: dict[str, FieldValue] = {}
    for layer in people.network.spec.inputs:
        record = people.run.fields[layer.field]
        if record.kind == "dense":
            sample[layer.field] = torch.linspace(0, 1, record.width).tolist()
        else:
            known = people.names[layer.field].place_of
            sample[layer.field] = [*islice(known, 0, None, max(1, len(known) // _FEATURES))]
    return sample


def asks_of_each_kind(fields: dict[str, FieldValue], item: str, about: About) -> list[Ask]:
    """Return a request of each kind; the model may refuse some.

    Args:
        fields: What is known of the person.
        item: Id of an item.
        about: What the model says of itself.
    """
    rules: list[dict[str, Any]] = [{}, {"never": [item]}, {"only": [item]}, {"weights": {item: 0.5}}]
    rules.append({"diversity": 0.5})
    by_kind = {category.kind: (name, category) for name, category in about.attributes.items()}
    for name, category in by_kind.values():
        rules.append({"attributes": [name]})
        if category.values:
            rules += [{"at_most": {name: 1}}, {"where": {name: category.values[:1]}}]
    asks: list[Ask] = [Recommend(fields=fields, **rule) for rule in rules]
    return [*asks, Score(fields=fields, candidates=[item]), Explain(fields=fields, item=item)]

"""What answers say of the items that a model recommends: ids, titles and attributes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from widenet.data.attributes import Attributes
from widenet.data.vocabulary import Vocabulary
from widenet.errors import WidenetError
from widenet.predict.list_rules import existing
from widenet.serve.messages import Found, Item
from widenet.serve.people import as_refusal

Scored = Sequence[tuple[int, float]]
"""Units with their scores."""


@dataclass(frozen=True)
class Catalogue:
    """The items of an output.

    Attributes:
        vocabulary: Their ids and titles.
        attributes: Their attributes, if they have any.
    """

    vocabulary: Vocabulary
    attributes: Attributes | None

    def checked(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names of attributes that a request asks for, once each.

        Raises:
            RefusedError: There is no such attribute.
        """
        distinct = tuple(dict.fromkeys(names or ()))
        try:
            for name in distinct:
                existing(self.attributes, "attributes").check(name)
        except WidenetError as error:
            raise as_refusal(error) from None
        return distinct

    def items(self, answers: Sequence[Scored], names: Sequence[tuple[str, ...]]) -> list[list[Item]]:
        """Return the items of several answers, which are read together.

        Args:
            answers: Units and scores of each.
            names: The attributes that its items have; see `checked`.
        """
        titles = iter(self.vocabulary.named([unit for scored in answers for unit, _ in scored]))
        found = [
            [Item(*title, score) for title, (_, score) in zip(islice(titles, len(each)), each, strict=True)]
            for each in answers
        ]
        for together in dict.fromkeys(each for each in names if each):
            asked = [place for place, own in enumerate(names) if own == together]
            units = [unit for place in asked for unit, _ in answers[place]]
            items = [item for place in asked for item in found[place]]
            assert self.attributes is not None
            for item, own in zip(items, self.attributes.of(units, together), strict=True):
                item.attributes = own
        return found

    def search(self, text: str, most: int, names: Sequence[str] = ()) -> list[Found]:
        """Return the items that a text finds by id or title, best first; any thread may call it.

        Args:
            text: The text.
            most: Largest number of items.
            names: Attributes to return.

        Raises:
            RefusedError: There is no such attribute.
        """
        distinct = self.checked(names)
        units = self.vocabulary.search(text, most)
        found = self.listed(units)
        if self.attributes is not None and distinct:
            for each, own in zip(found, self.attributes.of(units, distinct), strict=True):
                each.attributes = own
        return found

    def listed(self, units: Sequence[int]) -> list[Found]:
        """Return items without scores."""
        return [Found(*each) for each in self.vocabulary.named(units)]

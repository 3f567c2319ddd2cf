"""Ids, titles and attributes: places of ids without reading them all, and what answers say of items."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from widenet.data.attributes import Attributes
from widenet.data.vocabulary import Vocabulary
from widenet.predict.filters import existing
from widenet.serve.requests import Found, Item, RefusedError, Unknown

_SHOWN = 5

Scored = Sequence[tuple[int, float]]
"""Units with their scores."""


@dataclass(frozen=True)
class Names:
    """Places of ids.

    Attributes:
        what: What the ids name, for messages: "item".
        place_of: Place of every id.
    """

    what: str
    place_of: dict[str, int]

    @classmethod
    def of(cls, what: str, ids: Sequence[str]) -> "Names":
        """Index ids; of equal ones the first counts."""
        return cls(what, {name: place for place, name in reversed([*enumerate(ids)])})

    def places(self, ids: Sequence[str], unknown: Unknown, skipped: list[str]) -> list[int | None]:
        """Return the place of every id, None for a skipped one.

        Args:
            ids: The ids.
            unknown: What to do with those that nothing has.
            skipped: These, out.

        Raises:
            RefusedError: An id is unknown, and none may be.
        """
        places = [*map(self.place_of.get, ids)]
        if None not in places:
            return places
        missing = [name for name, place in zip(ids, places, strict=True) if place is None]
        if unknown == "refuse":
            shown = ", ".join(repr(name) for name in missing[:_SHOWN])
            more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
            raise RefusedError(422, f"unknown_{self.what}", f"no {self.what} has the id {shown}{more}")
        skipped[:] = dict.fromkeys([*skipped, *missing])
        return places


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
        """Return the names of attributes that a request asks for, once each; raises WidenetError."""
        distinct = tuple(dict.fromkeys(names or ()))
        for name in distinct:
            existing(self.attributes, "attributes").check(name)
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
            WidenetError: There is no such attribute.
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

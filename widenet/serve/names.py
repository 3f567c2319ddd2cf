"""Ids of features and users, found without reading them all."""

from collections.abc import Sequence
from dataclasses import dataclass

from widenet.serve.messages import RefusedError, Unknown

_SHOWN = 5


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
            remedy = "Check the id." if self.what == "user" else 'Remove it, or send "unknown": "skip".'
            if self.what == "item":
                remedy += " GET /v1/items?search= finds ids."
            raise RefusedError(
                422, f"unknown_{self.what}", f"no {self.what} has the id {shown}{more}. {remedy}"
            )
        skipped[:] = dict.fromkeys([*skipped, *missing])
        return places

"""Requests and answers, as JSON has them, and the bounds that a request must keep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from widenet.errors import WidenetError

Unknown = Literal["refuse", "skip"]
Measure = Literal["cosine", "dot", "l2"]
HeldPart = Literal["validation", "heldout"]
FieldValue = str | float | list[str | float]
Condition = bool | int | float | str | list[bool | int | float | str]


class Person(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Somebody to recommend to: a basket, or a user of the dataset.

    Attributes:
        items: Ids of items, for networks that read a sequence in order, the newest last.
        values: One number for each item, for networks trained with values.
        fields: What is known beside items, by field: ids of categories, or numbers of a dense field.
        user: Id of a user of the dataset, instead of items.
        unknown: Whether an unknown id refuses the request or is skipped. In filters it is skipped; unknown
            ids alone refuse the request, with "skip" those of `only` alone.
    """

    items: list[str] | None = None
    values: list[float] | None = None
    fields: dict[str, FieldValue] | None = None
    user: str | None = None
    unknown: Unknown = "refuse"


class Recommend(Person, kw_only=True):
    """One request for recommendations.

    Attributes:
        k: Number of items.
        never: Ids of items to leave out.
        only: Ids of the items to choose from.
        include_seen: Whether items that the person has may be recommended.
        at_most: Largest number of items of each category, by attribute.
        where: Only items with these values, by attribute: true or false, or texts.
        weights: Factors on the scores of items, by id, from 0 on; those of other items are 1.
        diversity: Weight of the similarity to items before in the list, 0 to 1.
        part: For a user: recommend as an evaluation of this part does. The network sees neither it nor later
            parts, and the answer lists it.
        attributes: Attributes that each item of the answer has beside its title, by name.
    """

    k: int = 10
    never: list[str] | None = None
    only: list[str] | None = None
    include_seen: bool = False
    at_most: dict[str, int] | None = None
    where: dict[str, Condition] | None = None
    weights: dict[str, float] | None = None
    diversity: float = 0.0
    part: HeldPart | None = None
    attributes: list[str] | None = None


class RecommendMany(Recommend, kw_only=True):
    """One request for recommendations, or several under `requests`.

    Attributes:
        requests: The requests; then no other field is allowed beside it.
    """

    requests: list[Recommend] | None = None


class Score(Person, kw_only=True):
    """A request for the scores of some items.

    Attributes:
        candidates: Ids of the items.
        attributes: Attributes that each item of the answer has beside its title, by name.
    """

    candidates: list[str]
    attributes: list[str] | None = None


class Similar(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request for the items most similar to one.

    Attributes:
        item: Id of the item.
        k: Number of items.
        measure: Measure of nearness of the items' vectors.
        attributes: Attributes that each item of the answer has beside its title, by name.
    """

    item: str
    k: int = 10
    measure: Measure = "cosine"
    attributes: list[str] | None = None


class Explain(Person, kw_only=True):
    """A request for what each item of somebody's history adds to the logit of an item.

    Attributes:
        item: Id of the item.
    """

    item: str


class Load(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request to serve another run.

    Attributes:
        run: Name of a run in the folder of runs.
    """

    run: str


class Item(msgspec.Struct, gc=False):
    """An item with its score.

    Attributes:
        item: Its id.
        title: Its title, or the id of an item without one.
        score: Its score: the activation of its unit, or what the route is asked for.
        attributes: The attributes that were asked for and that it has.
    """

    item: str
    title: str
    score: float
    attributes: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Answer(msgspec.Struct):
    """The items of one request, best first, or in the order of its candidates.

    Attributes:
        fingerprint: SHA-256 of the weights that gave the answer.
        items: The items.
        unknown: Ids of the request that were skipped.
        held_out: The user's items of the part that the request names.
        is_personal: Of recommendations and scores: whether the network knows anything of the person. If not,
            everybody unknown gets the same.
    """

    fingerprint: str
    items: list[Item]
    unknown: list[str] = []
    held_out: "list[Found] | msgspec.UnsetType" = msgspec.UNSET
    is_personal: bool | msgspec.UnsetType = msgspec.UNSET


class Answers(msgspec.Struct):
    """The answers to several requests.

    Attributes:
        results: The answers, in the order of the requests.
    """

    results: list[Answer]


class Found(msgspec.Struct):
    """An item that a search found.

    Attributes:
        item: Its id.
        title: Its title, or the id of an item without one.
        attributes: The attributes that were asked for and that it has.
    """

    item: str
    title: str
    attributes: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Finding(msgspec.Struct):
    """The items that a search found.

    Attributes:
        fingerprint: SHA-256 of the weights of the model that was searched.
        items: The items, most popular first.
    """

    fingerprint: str
    items: list[Found]


class Category(msgspec.Struct):
    """An attribute of items.

    Attributes:
        kind: Type of its values: "text", "list" (of texts), "boolean", "number" or "date".
        values: Its most frequent values, at most 100. Without any, no rule may name it: numbers and dates.
    """

    kind: str
    values: list[Any]


class AskedField(msgspec.Struct):
    """What the network reads beside items.

    Attributes:
        name: Name of the field.
        kind: "sparse" or "sequence", which take ids, or "dense", which takes numbers.
        width: Number of features, or of numbers.
        shape: Channels and sizes of the axes, as the network sees the numbers; empty if they have no order.
        lowest: The smallest number in the data.
        highest: The largest.
    """

    name: str
    kind: str
    width: int
    shape: list[int]
    lowest: float
    highest: float


class About(msgspec.Struct):
    """Which model answers.

    Attributes:
        fingerprint: SHA-256 of its weights.
        run: Name of its run directory.
        num_items: Number of items that it can recommend.
        in_8_bits: Whether its wide matrices are whole numbers in 8 bits.
        has_users: Whether requests may name users of a dataset.
        parts: The parts of the users' items that were set aside.
        can_explain: Whether it says what each item of a history adds to a logit.
        attributes: The attributes of the items.
        reads_items: Whether it reads items by id.
        reads_values: Whether it was trained with a number for each item.
        fields: What it reads beside them.
    """

    fingerprint: str
    run: str
    num_items: int
    in_8_bits: bool
    has_users: bool
    parts: list[str]
    can_explain: bool
    attributes: dict[str, Category]
    reads_items: bool
    reads_values: bool
    fields: list[AskedField]


class Mistake(msgspec.Struct, omit_defaults=True):
    """Why a request has no answer.

    Attributes:
        code: A word for programs.
        message: A sentence.
        option: The field or the parameter that it is about.
    """

    code: str
    message: str
    option: str | None = None


class Refusal(msgspec.Struct):
    """An answer that is no success.

    Attributes:
        error: Why.
    """

    error: Mistake


class RefusedError(WidenetError):
    """A request that gets an error as its answer.

    Args:
        http_status: Status of the answer.
        code: A word for programs.
        rule: As in `WidenetError`.
        headers: Further headers of the answer.
        facts: The other facts of a `WidenetError`.
    """

    def __init__(
        self,
        http_status: int,
        code: str,
        rule: str,
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(rule, **facts)
        self.http_status, self.code, self.headers = http_status, code, dict(headers or {})


def unavailable(code: str, rule: str) -> RefusedError:
    """Return the refusal of a request that may be sent again in a second."""
    return RefusedError(503, code, rule, {"Retry-After": "1"})


Ask = Recommend | Score | Similar | Explain
Result = Answer | WidenetError
"""An answer, or why there is none."""

LISTS = "items", "values", "never", "only", "attributes"
"""Fields of requests that are lists, and bounded."""
LONGEST_SEARCH = 200
"""Most characters of a text that is looked for in titles."""


@dataclass(frozen=True)
class Bounds:
    """The largest lists and numbers of a request."""

    max_items: int
    max_k: int
    max_rows: int

    def check(self, asks: Sequence[Ask]) -> None:
        """Raise RefusedError for a request beyond the bounds."""
        if not 1 <= len(asks) <= self.max_rows:
            code = "too_many" if asks else "out_of_bounds"
            rule = f"must hold 1 to {self.max_rows:,} requests"
            raise RefusedError(422, code, rule, option="requests", value=len(asks))
        for ask in asks:
            self._check(ask)

    def _check(self, ask: Ask) -> None:
        name, k = (
            ("candidates", len(ask.candidates)) if isinstance(ask, Score) else ("k", getattr(ask, "k", 1))
        )
        if not 1 <= k <= self.max_k:
            what = "hold 1 to" if isinstance(ask, Score) else "be 1 to"
            raise RefusedError(422, "out_of_bounds", f"must {what} {self.max_k:,}", option=name, value=k)
        lists = {name: getattr(ask, name, None) for name in (*LISTS, "weights")}
        fields = getattr(ask, "fields", None) or {}
        # Numbers of dense fields are as many as the field is wide, and bounded by the bytes of the body.
        named = [("fields", _texts(value)) for value in fields.values()]
        named += [("where", value) for value in (getattr(ask, "where", None) or {}).values()]
        for name, listed in [*lists.items(), *named]:
            if isinstance(listed, list | dict) and len(listed) > self.max_items:
                rule = f"must hold at most {self.max_items:,} entries"
                raise RefusedError(422, "out_of_bounds", rule, option=name, value=len(listed))


def _texts(value: FieldValue) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []

"""The signatures of methods whose result depends on their arguments, for type checkers."""

from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict, Unpack, overload

from widenet.data.dataset import Dataset
from widenet.predict.filters import Ids, IdsByUser, Weights
from widenet.runs.recommending import Format, Recommendation


class RecommendOptions(TypedDict, total=False):
    """The arguments of `Model.recommend` that do not decide the type of its result."""

    data: Dataset | str | Path | None
    values: Sequence[float] | Sequence[Sequence[float]] | None
    fields: Mapping[str, Any] | None
    columns: Mapping[str, str] | None
    exclude_seen: bool
    never: Ids | None
    only: Ids | None
    never_for: IdsByUser | None
    only_for: IdsByUser | None
    weights: Weights | None
    at_most: Mapping[str, int] | None
    where: Mapping[str, Any] | None
    diversity: float
    output: str | None


Names = Sequence[str | int]
Basket = list[Any] | tuple[Any, ...] | Set[Any]
Baskets = Sequence[Basket]
Several = list[str] | list[int] | tuple[str | int, ...]


class Recommend(Protocol):
    """The type of `Model.recommend`: a list for one person, a list of lists for several, or a table."""

    @overload
    def __call__(
        self, items: Names = (), k: int = 10, *, format: None = None, **options: Unpack[RecommendOptions]
    ) -> list[Recommendation]: ...
    @overload
    def __call__(
        self, items: Baskets, k: int = 10, *, format: None = None, **options: Unpack[RecommendOptions]
    ) -> list[list[Recommendation]]: ...
    @overload
    def __call__(
        self, *, users: str | int, k: int = 10, format: None = None, **options: Unpack[RecommendOptions]
    ) -> list[Recommendation]: ...
    @overload
    def __call__(
        self,
        *,
        users: Several,
        k: int = 10,
        format: None = None,
        **options: Unpack[RecommendOptions],
    ) -> list[list[Recommendation]]: ...
    @overload
    def __call__(
        self,
        items: Any = (),
        k: int = 10,
        *,
        users: Any = None,
        format: Format | None = None,
        **options: Unpack[RecommendOptions],
    ) -> Any: ...


def recommends(method: Callable[..., Any]) -> Recommend:
    """Give `Model.recommend` its type."""
    return method


class Similar(Protocol):
    """The type of `Model.similar`: a list for one item, a list of lists for several, or a table."""

    @overload
    def __call__(
        self, items: str | int, k: int = 10, *, layer: str | None = None, format: None = None
    ) -> list[Recommendation]: ...
    @overload
    def __call__(
        self, items: Several, k: int = 10, *, layer: str | None = None, format: None = None
    ) -> list[list[Recommendation]]: ...
    @overload
    def __call__(
        self,
        items: Any,
        k: int = 10,
        *,
        layer: str | None = None,
        measure: Literal["dot", "cosine", "l2"] = "cosine",
        format: Format | None = None,
    ) -> Any: ...


def compares(method: Callable[..., Any]) -> Similar:
    """Give `Model.similar` its type."""
    return method

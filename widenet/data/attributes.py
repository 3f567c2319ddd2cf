"""Attributes of items: categories, numbers, booleans and dates, one row for each feature; memory-mapped."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.arguments import checked_positions
from widenet.data.vocabulary import open_table, texts_array
from widenet.errors import DataError, OptionError, did_you_mean, nearest

Kind = Literal["text", "list", "boolean", "number", "date"]

_KIND_OF: Mapping[pa.DataType, Kind] = {
    pa.string(): "text",
    pa.list_(pa.string()): "list",
    pa.bool_(): "boolean",
    pa.int64(): "number",
    pa.float64(): "number",
    pa.date32(): "date",
    pa.timestamp("us"): "date",
}
_CATEGORIES: tuple[Kind, ...] = ("text", "list", "boolean")
"""Kinds of attributes that rules may name."""


def attributes_file(field: str) -> str:
    """File name of the attributes of a field's features: a column for each, a row for each feature."""
    return f"{field}.attributes.arrow"


def aside_file(field: str) -> str:
    """File name of the items that are no features yet: the columns id, title, and the attributes."""
    return f"{field}.aside.arrow"


def aside_schema(attributes: pa.Schema) -> pa.Schema:
    """The columns of the items that are kept aside: id, title, and all attributes in one."""
    return pa.schema(
        [("id", pa.string()), ("title", pa.string()), ("attributes", pa.struct(list(attributes)))]
    )


def kinds_of(schema: pa.Schema) -> dict[str, Kind]:
    """The kind of each attribute, by name."""
    return {column.name: _KIND_OF[column.type] for column in schema}


class Attributes:
    """The attributes of a field's features, by index; a single Arrow file, which may be copied.

    Attributes:
        path: The file.
        table: A column for each attribute.
        kinds: The kind of each attribute, by name: "text", "list" (of texts), "boolean", "number" or "date".
    """

    def __init__(self, path: Path, table: pa.Table) -> None:
        self.path, self.table = path, table
        self.kinds = kinds_of(table.schema)

    @classmethod
    def open(cls, path: str | Path, num_features: int, sha256: str | None = None) -> "Attributes":
        """Open and check the attributes in a file.

        Args:
            path: The file.
            num_features: Number of features.
            sha256: The file's SHA-256, if it is known.

        Raises:
            DataError: The file is missing, damaged, or does not hold attributes of so many features.
        """
        path = Path(path)
        table = open_table(path, "file of attributes", sha256)
        names, types = table.schema.names, table.schema.types
        is_known = len(set(names)) == len(names) and all(each in _KIND_OF for each in types)
        DataError.require(is_known, "must hold columns of known types", place=path, value=types)
        rule = f"must hold the attributes of {num_features:,} features"
        DataError.require(table.num_rows == num_features, rule, place=path, value=table.num_rows)
        return cls(path, table)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}: {kind}" for name, kind in self.kinds.items())
        return f"Attributes({str(self.path)!r}, {len(self):,} features, {listed})"

    def check(self, name: str) -> Kind:
        """Return the kind of an attribute; raises OptionError that lists the known ones for another name."""
        if name not in self.kinds:
            raise OptionError(f'the items have no attribute "{name}".{did_you_mean(name, self.kinds)}')
        return self.kinds[name]

    def of(
        self, indices: Sequence[int] | np.ndarray, names: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """The attributes of some features as Python values, by name; those that are missing are left out.

        Args:
            indices: The features.
            names: The attributes. Default: all.

        Raises:
            OptionError: There is no such attribute or feature.
        """
        for name in names or ():
            self.check(name)
        rows = checked_positions(str(self.path), "indices", indices, len(self))
        taken = self.table.select(list(self.kinds if names is None else names)).take(pa.array(rows))
        return [
            {name: value for name, value in row.items() if value is not None} for row in taken.to_pylist()
        ]

    def categories(self, name: str) -> tuple[np.ndarray, int]:
        """Number the categories of an attribute of texts, lists or booleans.

        Returns:
            The categories of each feature, int64 [width, M], numbered from 0 in order of first appearance. M
            is the largest number of categories of a feature; the last number stands for those that it lacks.
            And the number of categories, that last one included.

        Raises:
            OptionError: There is no such attribute, or it holds numbers or dates.
        """
        self._check_category(name, "at_most")
        owners, values = self.entries(name)
        encoded = values.dictionary_encode()
        number = len(encoded.dictionary)
        codes = pc.fill_null(encoded.indices.cast(pa.int64()), number).to_numpy(zero_copy_only=False)
        pairs = np.unique(np.stack([owners, codes], axis=1), axis=0)
        places = np.arange(len(pairs)) - np.searchsorted(pairs[:, 0], pairs[:, 0])
        categories = np.full((len(self), int(places.max(initial=0)) + 1), number, dtype=np.int64)
        categories[pairs[:, 0], places] = pairs[:, 1]
        return categories, number + 1

    def frequent(self, most: int) -> dict[str, tuple[Kind, list[Any]]]:
        """Return each attribute's kind, and its `most` most frequent values if rules may name them.

        Categories come first, then other values that features share, and last what differs from feature to
        feature, as ids do; each in the order of the file.
        """
        found, order = {}, {}
        for name, kind in self.kinds.items():
            values, is_category = self.entries(name)[1].drop_null(), kind in _CATEGORIES
            counted = pc.value_counts(values)
            counts = counted.to_pylist() if is_category else []
            counts.sort(key=lambda each: (-each["counts"], each["values"]))
            found[name] = kind, [each["values"] for each in counts[:most]]
            is_varied = not len(values) or 2 * len(counted) > len(values)
            order[name] = kind != "boolean" and is_varied, not is_category
        return {name: found[name] for name in sorted(found, key=order.__getitem__)}

    def matching(self, where: Mapping[str, Any]) -> np.ndarray:
        """Whether each feature fulfils all conditions, bool [width].

        Args:
            where: By attribute, True or False for booleans, or a text or a list of texts for categories, of
                which an item has one; an item without a value fulfils none.

        Raises:
            OptionError: A condition is wrong, or names an unknown attribute.
        """
        kept = np.ones(len(self), dtype=bool)
        for name, wanted in where.items():
            self._check_category(name, "where")
            owners, values = self.entries(name)
            accepted = wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
            # As the command line writes booleans; no text of a cell is read as one.
            words = [str(each).lower() if values.type == pa.bool_() else each for each in accepted]
            texts = values.cast(pa.string())
            known = ["true", "false"] if values.type == pa.bool_() else texts.drop_null().unique().to_pylist()
            are_texts = all(isinstance(word, str) for word in words)
            is_known = bool(are_texts and set(words) & set(known))
            if values.type == pa.bool_():
                is_known = bool(words) and set(words) <= set(known)
            near = next(filter(None, (nearest(word, known) for word in words)), "") if are_texts else ""
            of = "true or false" if values.type == pa.bool_() else "texts of which an item has one"
            rule = f'must give {of} for "{name}"; got {wanted!r}.{near}'
            OptionError.require(is_known, rule, option="where")
            is_in = pc.is_in(texts, value_set=texts_array(words)).to_numpy(zero_copy_only=False)
            kept &= np.isin(np.arange(len(self)), owners[is_in])
        return kept

    def entries(self, name: str) -> tuple[np.ndarray, pa.Array]:
        """The values of an attribute, each entry of a list for itself, and the feature of each, int64 [Z]."""
        column = self.table.column(name).combine_chunks()
        if self.kinds[name] == "list":
            return pc.list_parent_indices(column).to_numpy(), pc.list_flatten(column)
        return np.arange(len(self)), column

    def _check_category(self, name: str, option: str) -> None:
        """Raise OptionError unless an attribute has categories."""
        rule = f'needs texts, lists or booleans; "{name}" is a {self.check(name)}'
        OptionError.require(self.kinds[name] in _CATEGORIES, rule, option=option)

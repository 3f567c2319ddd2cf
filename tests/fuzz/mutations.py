"""Changes to bytes, texts, JSON documents and command lines, each drawn from a `random.Random`."""

import copy
import json
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

_NUMBERS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1]
# fmt: off
_CELLS = [
    "", " ", '"', '""', "'", "\\", "\0", "\ufeff", "\u00e9", "\u202e", "\U0001f600", "NA", "null", "None",
    "true", "0", "-1", "-0", "1.0", "1e39", "-1e400", "nan", "inf", "1,000", "1.000,5", "0x10", "00",
    "1_000", "9" * 40, "1e-400", "2024-02-30", "31/12/2024", "1700000000", "1700000000000", "12:61", "a,b",
    "a:1", "a,1:b,2", "{}", "[1,2]", "x" * 70_000,
]
_MARKS = [
    ",", ";", "\t", "|", "::", " ", "  ", "\n", "\r\n", "\r", "\n\n", ":", '"', "\\", "\x00", "\x1a",
    "\x0b", "\u2028",
]
_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 0.5, -0.0, 1e308, 1e-320, 2**31, 2**53 + 1, 2**63, 10**30, "", "x",
    "auto", "items", "next", "taste", [], {}, [[]], {"kind": "x"}, ["history"], "softmax", "\0", "\u00e9",
    float("nan"), float("inf"),
]
WORDS = [
    "", "-1", "0", "1", "2", "3.5", "1e30", "nan", "inf", "99999999999999999999", "--", "-", "-x", "--help",
    "=", "items=3", "a=b=c", "x" * 5_000, "\u00e9", "\udcff", "%s", "*", "?", "[", "a b", ".", "..",
    "nowhere/x", "likes.csv", "likes.csv/x", "data", "run", "network.json", "training.json", "1KB", "1GB",
    "50%", "csv", "dsstne", "npz", "cpu", "cuda", "heldout", "items", "user", "2024-05-01", "7d", "fifo",
    "loop", "sparse",
]
"""What may stand in place of a word of a command line. All paths lead into the case's own folder."""
# fmt: on


def changed_bytes(random: Random, content: bytes) -> bytes:
    """One to four changes of bytes: flipped, set, removed, repeated, inserted, cut off."""
    found = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        _change_bytes(random, found)
    return bytes(found)


def _change_bytes(random: Random, found: bytearray) -> None:
    start = random.randrange(len(found) + 1)
    stop = min(len(found), start + random.choice((1, 2, 4, 8, 64, 1000)))
    match random.choice(_BYTE_CHANGES):
        case "flip" if start < stop:
            found[start] ^= 1 << random.randrange(8)
        case "number":
            size, form = random.choice(((2, "<H"), (4, "<I"), (4, ">I"), (8, "<Q"), (8, ">Q")))
            found[start : start + size] = struct.pack(form, random.choice(_NUMBERS) % (1 << 8 * size))
        case "remove":
            del found[start:stop]
        case "repeat":
            found[stop:stop] = found[start:stop] * random.choice((1, 1, 2, 50))
        case "insert":
            own = random.randbytes(random.randrange(1, 9))
            found[start:start] = random.choice((b"\0", b"\xff", b"\n", b'"', own, b"\0" * 300))
        case "blank":
            found[start:stop] = random.choice((b"\0", b"\xff")) * (stop - start)
        case "cut":
            del found[start:]


_BYTE_CHANGES = ["flip"] * 3 + ["number"] * 2 + ["remove", "repeat", "insert", "blank", "cut"]


def changed_text(random: Random, text: str) -> bytes:
    """One to four changes of cells, delimiters and lines; sometimes another encoding, other line ends, or
    changed bytes.
    """
    for _ in range(random.choice((1, 1, 2, 4))):
        text = _changed_line(random, text)
    if random.random() < 0.1:
        text = text.replace("\n", random.choice(("\r\n", "\r", "\n\r\n")))
    encoding = random.choice(("utf-8",) * 8 + ("utf-8-sig", "utf-16", "cp1252"))
    content = text.encode(encoding, "replace")
    return changed_bytes(random, content) if random.random() < 0.2 else content


def _changed_line(random: Random, text: str) -> str:
    lines = text.split("\n")
    place = random.randrange(len(lines))
    mark = random.choice((",", "\t", " ", ":", ";"))
    cells = lines[place].split(mark)
    change, cell = random.randrange(9), random.randrange(len(cells))
    if change < 3:
        cells[cell] = random.choice(_CELLS)
    elif change == 3:
        cells.insert(cell, random.choice(_CELLS))
    elif change == 4:
        del cells[cell]
    elif change == 5:
        mark = random.choice(_MARKS)
    elif change == 6:
        lines.insert(place, random.choice((lines[place], "", " ", random.choice(_CELLS), "# a remark")))
    elif change == 7:
        cells = [random.choice(_CELLS) for _ in cells]
    else:
        cells = cells + cells
    lines[place] = mark.join(cells) if change != 6 else lines[place]
    return "\n".join(lines)


def changed_json(random: Random, text: str) -> bytes:
    """A JSON document with one to three values replaced, removed, repeated or added; sometimes changed as
    a text.
    """
    if random.random() < 0.15:
        return changed_text(random, text)
    whole: list[Any] = [json.loads(text)]
    for _ in range(random.choice((1, 1, 2, 3))):
        place: tuple[Any, ...] = (0, *random.choice(list(_places(whole[0]))))
        owner: Any = whole
        for key in place[:-1]:
            owner = owner[key]
        _change_value(random, owner, place[-1], whole)
    return json.dumps(whole[0]).encode()


def _change_value(random: Random, owner: Any, last: Any, whole: list[Any]) -> None:
    change, value = random.randrange(4), copy.deepcopy(random.choice(_VALUES))
    if change < 2 or owner is whole:
        owner[last] = value
    elif change == 2:
        del owner[last]
    elif isinstance(owner, list):
        owner.append(copy.deepcopy(owner[last]) if random.random() < 0.5 else value)
    else:
        owner[random.choice((str(last) + "s", "name", "kind", "units", "x", ""))] = copy.deepcopy(owner[last])


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from _places(inner, (*path, key))


def changed_words(random: Random, words: list[str]) -> list[str]:
    """A command line with one to three words replaced, removed, repeated or added."""
    words = list(words)
    for _ in range(random.choice((1, 1, 2, 3))):
        place, change = random.randrange(len(words)), random.randrange(5)
        if change < 3:
            words[place] = random.choice(WORDS)
        elif change == 3 and len(words) > 1:
            del words[place]
        else:
            words.insert(place, random.choice((words[place], random.choice(WORDS))))
    return [word.replace("\0", "") for word in words]

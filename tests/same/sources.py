"""Files that both sides read, drawn here: a small shop, sessions, sentences and labelled points."""

import random
from itertools import accumulate
from pathlib import Path

WORDS = ("the", "cat", "dog", "bird", "fish", "horse", "sees", "likes", "hears", "follows", "finds", "a")
GENRES = ("crime", "poetry", "travel", "history", "art")
USERS, ITEMS = 400, 300


def write_sources(folder: Path) -> None:
    """Write all files."""
    chance = random.Random(45)
    popular = list(accumulate(1 / (item + 3) for item in range(ITEMS)))
    rows = []
    for user in range(USERS):
        for item in chance.choices(range(ITEMS), cum_weights=popular, k=chance.randint(6, 30)):
            own = item if chance.random() < 0.4 else item - item % 5 + user % 5
            rows.append(
                (f"u{user}", f"i{own}", chance.randint(1, 5), 1_700_000_000 + chance.randrange(10**7))
            )
    later = [(f"u{n}", f"i{chance.randrange(ITEMS + 40)}", 5, 1_720_000_000 + n) for n in range(USERS)]
    for name, of_it in (("shop", rows), ("later", [*rows, *later])):
        _write(folder / f"{name}.csv", "user,item,rating,time", of_it)
    people = [
        (f"u{n}", chance.randint(18, 80), chance.randint(1, 9), "dfip"[n % 4], 1 + n % 3)
        for n in range(USERS)
    ]
    _write(folder / "users.csv", "user,age,income,country,importance", people)
    genres = ["/".join(sorted({GENRES[n % 5], chance.choice(GENRES)})) for n in range(ITEMS + 20)]
    goods = [(f"i{n}", f"Book {n}", genre, chance.randint(3, 90) / 2) for n, genre in enumerate(genres)]
    _write(folder / "items.csv", "item,title,genre,price", goods)
    sessions = [[chance.randrange(250)] for _ in range(500)]
    for session in sessions:
        for _ in range(chance.randint(2, 9)):
            near, back = (session[-1] + chance.randint(1, 3)) % 250, chance.choice(session)
            session.append(near if chance.random() < 0.8 else back)
    _write(folder / "sessions.txt", "", [(" ".join(map(str, session)),) for session in sessions])
    sentences = [
        " ".join(chance.choice(WORDS[n % 3 :: 3]) for n in range(chance.randint(3, 8))) for _ in range(400)
    ]
    _write(folder / "sentences.txt", "", [(sentence,) for sentence in sentences])
    for name, number in (("points", 600), ("test-points", 80)):
        _write(folder / f"{name}.txt", f"{number} 200 90", [(_point(chance),) for _ in range(number)])


def _point(chance: random.Random) -> str:
    """A point of extreme classification, whose labels share features."""
    labels = sorted({min(int(chance.expovariate(0.05)), 89) for _ in range(3)})
    words = sorted({(label * 7 + step) % 200 for label in labels for step in chance.sample(range(9), 4)})
    return (
        f"{','.join(map(str, labels))} {' '.join(f'{word}:{chance.randint(1, 40) / 16}' for word in words)}"
    )


def _write(path: Path, header: str, rows: list[tuple[object, ...]]) -> None:
    lines = [*filter(None, [header]), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")

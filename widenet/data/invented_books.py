"""Generates data for the demo from a seed: a catalogue of invented books, and readers with tastes."""

import csv
from pathlib import Path

import numpy as np

from widenet import randomness

INTERACTIONS_FILE = "interactions.csv"
TITLES_FILE = "titles.csv"

_FROM_THEME, _FROM_GENRE = 0.65, 0.25
"""Shares of a reader's books from a favourite theme and from a favourite genre; the rest are any books."""
_FEWEST_BOOKS = 12
_SPREAD_OF_BOOKS = 54
_DRAWS_PER_BOOK = 3

_THEMES = {
    "fantasy": ("Dragon", "Crown", "Wizard", "Throne", "Sword", "Prophecy", "Enchantress", "Tower"),
    "mystery": (
        "Murder",
        "Detective",
        "Alibi",
        "Witness",
        "Poison",
        "Inheritance",
        "Locked Room",
        "Confession",
    ),
    "science fiction": (
        "Starship",
        "Colony",
        "Android",
        "Signal",
        "Orbit",
        "Time Machine",
        "Clone",
        "Terraformer",
    ),
    "romance": (
        "Wedding",
        "Kiss",
        "Love Letter",
        "Duchess",
        "Heartbreak",
        "Summer House",
        "Bachelor",
        "Second Chance",
    ),
    "history": ("Empire", "Revolution", "Queen", "Siege", "Plague", "Merchant", "Cathedral", "Treaty"),
    "horror": ("Ghost", "Cellar", "Vampire", "Nightmare", "Asylum", "Curse", "Scarecrow", "Seance"),
    "adventure": ("Expedition", "Treasure", "Pirate", "Jungle", "Mountain", "Desert", "Shipwreck", "Map"),
    "cooking": ("Kitchen", "Bread", "Spice", "Garden Table", "Soup", "Baker", "Feast", "Orchard"),
    "science": ("Atom", "Genome", "Galaxy", "Equation", "Fossil", "Brain", "Ocean Current", "Microscope"),
    "travel": ("Railway", "Island", "Bicycle", "Harbour", "Border", "Pilgrim", "River", "Night Train"),
    "children": ("Rabbit", "Balloon", "Teddy Bear", "Puppy", "Snowman", "Kitten", "Little Owl", "Treehouse"),
    "poetry": ("Sonnet", "Moonlight", "Silence", "Autumn", "Mirror", "Lark", "Tide", "Ember"),
}
_ADJECTIVES = (
    "Amber", "Ancient", "Bitter", "Borrowed", "Broken", "Copper", "Crimson", "Distant", "Drowned", "Eager",
    "Emerald", "Endless", "Faithful", "Fallen", "Forgotten", "Frozen", "Gentle", "Gilded", "Hidden", "Hollow",
    "Honest", "Iron", "Ivory", "Last", "Lonely", "Lost", "Patient", "Quiet", "Restless", "Scarlet", "Second",
    "Secret", "Seventh", "Silver", "Stolen", "Unwritten", "Wandering", "Whispering", "Wild", "Winter",
)  # fmt: skip
_PLACES = (
    "Aldermoor", "Ashgrove", "Belcastle", "Brightwater", "Calder Bay", "Corvane", "Dunmere", "Eastmarch",
    "Elmhollow", "Fairhaven", "Farrowdale", "Glassford", "Greyharbour", "Halloway", "Hartsend", "Ironbridge",
    "Juniper Hill", "Kestrel Point", "Lindenau", "Lowfield", "Marrowick", "Millbrook", "Northgate",
    "Oldcastle", "Oxbow", "Pinecrest", "Quarrytown", "Ravensholm", "Redcliff", "Rosamar", "Saltmarsh",
    "Silverlake", "Stonebridge", "Tamarind", "Thornbury", "Umberland", "Valmora", "Westering", "Willowby",
    "Yarrow",
)  # fmt: skip
_PATTERNS = 3 * len(_ADJECTIVES)


def write_catalogue_csv(
    folder: Path, num_users: int = 8000, num_items: int = 3000, seed: int = 0
) -> tuple[Path, Path]:
    """Write `interactions.csv` (user, item) and `titles.csv` (item, title, genre), and return both paths.

    Every book has a genre, a theme of that genre, and a popularity that follows a power law. Every reader has
    two favourite genres, two favourite themes in each of them, and about 30 books. The bytes depend on the
    arguments alone: random numbers are only compared, multiplied and truncated, so they are rounded in the
    same way on every machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    interactions, titles = folder / INTERACTIONS_FILE, folder / TITLES_FILE
    themes = _themes_of_items(num_items, seed)
    _write(titles, ("item", "title", "genre"), _titles(themes, seed))
    users, items = _interactions(themes, num_users, seed)
    rows: list[tuple[str, ...]] = [
        (str(user + 1), str(item + 1)) for user, item in zip(users, items, strict=True)
    ]
    _write(interactions, ("user", "item"), rows)
    return interactions, titles


def _themes_of_items(num_items: int, seed: int) -> np.ndarray:
    """The theme of each item, numbered over all genres, int64 [items]; some themes are more frequent."""
    num_themes = sum(len(themes) for themes in _THEMES.values())
    random = randomness.stream(seed, "catalogue/themes")
    scattered = random.random(num_themes).argsort()
    themes: np.ndarray = scattered[(random.random((2, num_items)).max(axis=0) * num_themes).astype(np.int64)]
    return themes


def _titles(themes: np.ndarray, seed: int) -> list[tuple[str, ...]]:
    nouns = [(noun, genre) for genre, members in _THEMES.items() for noun in members]
    orders = randomness.stream(seed, "catalogue/titles").random((len(nouns), _PATTERNS)).argsort(axis=1)
    used = [0] * len(nouns)
    rows: list[tuple[str, ...]] = []
    for item, theme in enumerate(themes.tolist()):
        noun, genre = nouns[theme]
        volume, pattern = divmod(used[theme], _PATTERNS)
        used[theme] += 1
        sequel = f", Volume {volume + 1}" if volume else ""
        rows.append((str(item + 1), _title(noun, int(orders[theme, pattern])) + sequel, genre))
    return rows


def _title(noun: str, pattern: int) -> str:
    kind, word = divmod(pattern, len(_ADJECTIVES))
    return (
        f"The {_ADJECTIVES[word]} {noun}",
        f"The {noun} of {_PLACES[word]}",
        f"{noun} at {_PLACES[word]}",
    )[kind]


def _interactions(themes: np.ndarray, num_users: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Users and their items, without repeats and in order of users, int64 [Z] each."""
    random = randomness.stream(seed, "catalogue/readers")
    num_genres, per_genre = len(_THEMES), len(next(iter(_THEMES.values())))
    genres = random.random((num_users, num_genres)).argsort(axis=1)[:, :2]
    favourites = random.random((num_users, 2, per_genre)).argsort(axis=2)[:, :, :2]
    favourites += genres[:, :, None] * per_genre
    eagerness = random.random(num_users)
    wanted = _FEWEST_BOOKS + (_SPREAD_OF_BOOKS * eagerness * eagerness).astype(np.int64)
    users = np.repeat(np.arange(num_users), wanted * _DRAWS_PER_BOOK)
    source, genre, theme, depth = random.random((4, len(users)))
    chosen_genre = (genre * genre * 2).astype(np.int64)
    themes_wanted = favourites[users, chosen_genre, (theme * 2).astype(np.int64)]
    genres_wanted = genres[users, chosen_genre]
    by_theme, by_genre = _Shelves(themes), _Shelves(themes // per_genre)
    anything = _Shelves(np.zeros_like(themes))
    picked = [
        by_theme.pick(themes_wanted, depth),
        by_genre.pick(genres_wanted, depth),
        anything.pick(np.zeros_like(users), depth),
    ]
    items = np.select([source < _FROM_THEME, source < _FROM_THEME + _FROM_GENRE], picked[:2], picked[2])
    _, first = np.unique(users * len(themes) + items, return_index=True)
    kept = np.sort(first)
    started = np.searchsorted(users[kept], np.arange(num_users))
    within = np.arange(len(kept)) - started[users[kept]] < wanted[users[kept]]
    return users[kept][within], items[kept][within]


class _Shelves:
    """Items grouped by a label; within a group, lower items are more popular."""

    def __init__(self, labels: np.ndarray) -> None:
        self.items = np.argsort(labels, kind="stable")
        sizes = np.bincount(labels, minlength=int(labels.max()) + 1)
        self.starts = np.cumsum(sizes) - sizes
        self.sizes = sizes

    def pick(self, labels: np.ndarray, depth: np.ndarray) -> np.ndarray:
        """Pick an item of each label by a depth in [0, 1).

        The rank within the group is the depth cubed times its size, so that popularity follows a power law.
        """
        known = np.where(labels < len(self.sizes), labels, 0)
        size = self.sizes[known]
        positions = self.starts[known] + (depth * depth * depth * size).astype(np.int64)
        picked = self.items[np.minimum(positions, len(self.items) - 1)]
        items: np.ndarray = np.where(size > 0, picked, self.items[0])
        return items


def _write(path: Path, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)

"""Generated points of extreme classification: every label has some features of its own."""

from pathlib import Path

import numpy as np

FEATURES, LABELS, OWN = 120, 40, 6


def write_points(path: Path, points: int, seed: int, labels: int = LABELS) -> list[tuple[list[int], dict]]:
    """Write a file of points; returns the labels and the features with values of each."""
    random = np.random.default_rng(seed)
    own = np.random.default_rng(7).integers(0, FEATURES, size=(labels, OWN))
    chances = 1 / np.arange(1, labels + 1)
    made, lines = [], [f"{points} {FEATURES} {labels}"]
    for _ in range(points):
        chosen = random.choice(labels, size=random.integers(1, 4), replace=False, p=chances / chances.sum())
        words = {int(word) for label in chosen for word in random.choice(own[label], 4)}
        words |= {int(word) for word in random.integers(0, FEATURES, 2)}
        values = {word: float(np.float32(random.uniform(0.5, 2))) for word in words}
        made.append((sorted(map(int, chosen)), values))
        lines.append(
            ",".join(map(str, chosen)) + " " + " ".join(f"{word}:{value!r}" for word, value in values.items())
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return made

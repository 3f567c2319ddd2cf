"""Run by the old side's Python in its own tree: writes the datasets that only Python makes, and the documents
of the golden trainings.
"""

import json
import sys
from pathlib import Path

import numpy as np

from tests.golden import trainings
from widenet.data.lists import dataset_from_lists

folder, listed = map(Path, sys.argv[1:])
found = [
    {"name": name, "documents": [network, {**training, "bits": "portable"}], "data": str(data)}
    for name, network, training, data in trainings(folder)
]
random = np.random.default_rng(3)
labels = [random.choice(60, size=3, replace=False).tolist() for _ in range(24)]
pixels = random.random((24, 3 * 227 * 227), dtype=np.float32).tolist()
kept, heldout = [row[:2] for row in labels], [row[2:] for row in labels]
dataset_from_lists(folder / "photos", kept, heldout=heldout, width=60, dense={"pixels": pixels})
listed.write_text(json.dumps(found, indent=1))

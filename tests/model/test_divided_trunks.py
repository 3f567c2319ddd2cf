"""Split layers, split gates, layers by examples and wide weights on a disk: one fingerprint for every number
of processes.
"""

from functools import cache

import pytest

from tests import sequences
from tests.parallel import split
from tests.parallel.matrix import write_data

TRUNKS = {"split": split.SPLIT, "gates": split.GATES, "divided": split.DIVIDED}
CHANGES = [
    {"optimizer": "adam", "gradient_norm_limit": 0.05},
    {"optimizer": "nesterov", "l1": 0.01},
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A dataset for each trunk."""
    data = write_data(tmp_path_factory.mktemp("data"))
    sequences.write(data / "songs")
    return {"split": data / "dense", "gates": data / "songs", "divided": data / "few pictures"}


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, *(pytest.param(size, marks=pytest.mark.long) for size in (1, 2, 4, 8))])
def test_trunks_in_shards_and_wide_weights_on_a_disk_have_the_bits_of_one_process_in_memory(
    size, folders, groups, tmp_path
):
    """Split layers, split gates and layers by examples; three processes hold 3, 3 and 2 of 8 shards."""
    for name, case in TRUNKS.items():
        alone = trunk_alone(name, folders[name])
        assert len({fingerprint for _, fingerprint, *_ in alone}) == len(CHANGES)
        for found in groups(size)(split.outcomes_here, case, folders[name], CHANGES, tmp_path):
            pairs = zip(CHANGES, alone, found, strict=True)
            assert [(name, changes) for changes, one, many in pairs if one != many] == []


@cache
def trunk_alone(name, folder):
    return split.outcomes_alone(TRUNKS[name], folder, CHANGES)

"""Passes over rows wherever they lie, and the tiles that are used together."""

import pytest
import torch

from widenet.model.sweep import groups, sweep_over


def test_tensors_in_memory_take_part_without_effect():
    tensor = torch.arange(12.0).view(4, 3)
    with sweep_over([tensor], writes=True) as rows:
        rows.at(1, 3)
        assert rows.chunk_rows is None
        assert torch.equal(rows.rows(1, 3)[0], tensor[1:3])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (None, [(0, 4)]),
        (10, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        (20, [(0, 2), (2, 4)]),
        (34, [(0, 3), (3, 4)]),
    ],
)
def test_tiles_are_grouped_by_their_rows(rows, expected):
    assert [*groups([0, 10, 20, 30, 35], rows)] == expected

"""Two real processes."""

import torch

from labs.communication.processes import seconds


def test_two_processes_add_up_a_tensor():
    assert 0 < seconds((16, 4), torch.int64, 3) < 60

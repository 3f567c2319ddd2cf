"""Worker threads have one torch thread each, whatever the process had when they first worked."""

import torch

from widenet.parallel.threads import Workers, one_thread_an_operation


def test_a_worker_keeps_to_one_torch_thread_even_if_it_first_works_outside():
    workers = Workers(2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        workers.run(lambda shard: torch.full((1_000_000,), float(shard)), range(8))
        with one_thread_an_operation():
            assert set(workers.run(lambda _: torch.get_num_threads(), range(8))) == {1}
    finally:
        torch.set_num_threads(before)

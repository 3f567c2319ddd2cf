"""How the products of narrow layers are cut into blocks, and whether processes divide them."""

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Balance:
    """What a kind of device does well.

    rows, multiplications: of the smallest block of a product; smaller ones cost more than they give other
    threads to do.
    flops_per_byte: operations that a process makes in the time in which a byte of a result reaches all
    processes.
    """

    rows: int
    multiplications: int
    flops_per_byte: float


BALANCES = {
    "cpu": Balance(rows=64, multiplications=2**23, flops_per_byte=100.0),
    "cuda": Balance(rows=1024, multiplications=2**31, flops_per_byte=150.0),
}
"""By kind of device.

cpu: measured on cores of an AMD EPYC with AVX-512. Blocks of 64 rows cost a tenth of a product, of 32 rows a
quarter; 2^23 multiplications take 0.17 ms, starting threads 0.05 ms. A core makes 1.0e11 operations a second;
gloo hands 1.0e9 bytes from process to process.
cuda: not measured. 5e13 operations a second in float32, and NCCL's 3.5e11 bytes a second over NVLink.
"""


def num_blocks(rows: int, inner: int, columns: int, most: int, device: str) -> int:
    """Blocks of nearly equally many rows in which a product [rows, inner] x [inner, columns] is computed: a
    function of shapes alone.

    most: as many as are ever of use.
    """
    balance = BALANCES[device]
    return max(1, min(most, rows // balance.rows, rows * inner * columns // balance.multiplications))


def edges(rows: int, count: int) -> list[int]:
    """Where each of `count` blocks begins, and where the last one ends."""
    return [rows * block // count for block in range(count + 1)]


def dividing_pays(inner: int, num_processes: int, device: str) -> bool:
    """Whether processes gain time when each computes some blocks of a product and all get the rest.

    Of [M, K] x [K, N] each of P processes saves 2 M N K (1 - 1/P) operations, and 4 M N bytes must reach it.
    """
    return inner * (1 - 1 / num_processes) / 2 >= BALANCES[device].flops_per_byte


def most_rows(rows: int, count: int, num_processes: int) -> int:
    """Rows of the largest part where processes divide `count` blocks among themselves, in order."""
    begins = edges(rows, count)
    cuts = [begins[count * process // num_processes] for process in range(num_processes + 1)]
    return max(stop - start for start, stop in pairwise(cuts))

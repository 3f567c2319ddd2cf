"""Cuts the products of narrow layers into blocks, and decides whether processes divide them."""

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Balance:
    """Measured limits of a kind of device.

    Attributes:
        rows: Rows of the smallest block that is worth a thread.
        multiplications: Multiplications of the smallest such block.
        flops_per_byte: Operations of a process in the time that a byte takes to reach all processes.
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
    """Return the number of blocks of a product [rows, inner] x [inner, columns]; it depends on shapes alone.

    Args:
        rows: Rows of the result.
        inner: Multiplications for each number.
        columns: Columns of the result.
        most: Largest number of blocks.
        device: Kind of the device.
    """
    balance = BALANCES[device]
    return max(1, min(most, rows // balance.rows, rows * inner * columns // balance.multiplications))


def edges(rows: int, count: int) -> list[int]:
    """Return the first row of each of `count` blocks, then the number of rows."""
    return [rows * block // count for block in range(count + 1)]


def dividing_pays(inner: int, num_processes: int, device: str) -> bool:
    """Return whether processes save time if each computes some blocks of a product and receives the rest.

    With [M, K] x [K, N], each of P processes saves 2 M N K (1 - 1/P) operations and receives 4 M N bytes.
    """
    return inner * (1 - 1 / num_processes) / 2 >= BALANCES[device].flops_per_byte


def most_rows(rows: int, count: int, num_processes: int) -> int:
    """Return the rows of the largest part if processes divide `count` blocks among themselves, in order."""
    begins = edges(rows, count)
    cuts = [begins[count * process // num_processes] for process in range(num_processes + 1)]
    return max(stop - start for start, stop in pairwise(cuts))

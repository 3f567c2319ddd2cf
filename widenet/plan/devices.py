"""GPUs that a plan knows by name, with the memory and the rates that their maker publishes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NamedDevice:
    """A GPU as its maker describes it.

    Attributes:
        memory_bytes: Its memory.
        operations: Operations per second of dense matrix products, by `precision` of training.json.
        memory_rate: Bytes per second of its memory.
        link_rate: Bytes per second to the other devices of its machine, in each direction.
        host_rate: Bytes per second from the memory of its machine, and as many back.
        source: Where the numbers are published.
    """

    memory_bytes: int
    operations: dict[str, float]
    memory_rate: float
    link_rate: float
    host_rate: float
    source: str


def _hopper(memory_bytes: int, memory_rate: float, source: str) -> NamedDevice:
    """Return a Hopper GPU. NVIDIA publishes rates of sparse products; those of dense ones are half."""
    operations = {"float32": 67e12, "tf32": 989e12 / 2, "bfloat16": 1979e12 / 2}
    return NamedDevice(memory_bytes, operations, memory_rate, 450e9, 64e9, source)


DEVICES = {
    "a100": NamedDevice(
        80 * 10**9,
        {"float32": 19.5e12, "tf32": 156e12, "bfloat16": 312e12},
        2.039e12,
        300e9,
        32e9,
        "NVIDIA's data sheet of the A100 80GB SXM, 2022",
    ),
    "h100": _hopper(80 * 10**9, 3.35e12, "NVIDIA's data sheet of the H100 SXM, 2024"),
    "h200": _hopper(141 * 10**9, 4.8e12, "NVIDIA's data sheet of the H200 SXM, 2024"),
}
"""The devices, by the names that people call them."""

"""`python -m labs [--small]`: run every lab, one after another."""

from labs.averaging.lab import run as averaging
from labs.command import Run, asked, show
from labs.communication.lab import run as communication
from labs.compression.lab import run as compression
from labs.energy.lab import run as energy
from labs.evolution.lab import run as evolution
from labs.large_batches.lab import run as large_batches
from labs.numbers.lab import run as numbers
from labs.qsgd.lab import run as qsgd
from labs.staleness.lab import run as staleness

LABS: dict[str, Run] = {
    "energy": energy,
    "communication": communication,
    "staleness": staleness,
    "averaging": averaging,
    "qsgd": qsgd,
    "evolution": evolution,
    "large_batches": large_batches,
    "compression": compression,
    "numbers": numbers,
}

if __name__ == "__main__":
    small = asked()
    for name, lab in LABS.items():
        print(f"## {name}\n", flush=True)
        show(lab, small)

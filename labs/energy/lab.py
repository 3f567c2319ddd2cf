"""Computes the energy of a training step: what sparseness, tiles and short numbers save."""

from benchmarks.results import Table
from labs.energy.steps import Network, Way, step

NETWORKS = {
    "Gowalla: 40,981 x 512, batch 256, 27 entries": Network(40_981, 512, 256, 27),
    "1,000,000 x 128, batch 256, 100 entries": Network(1_000_000, 128, 256, 100),
}
WAYS = {
    "dense, logits in memory": (Way(sparse=False, tiled=False), "float32"),
    "sparse input": (Way(sparse=True, tiled=False), "float32"),
    "sparse input, tiles (widenet)": (Way(sparse=True, tiled=True), "float32"),
    "the same, 16-bit weights and products": (Way(sparse=True, tiled=True, number_bytes=2), "float16"),
}


def run(small: bool) -> list[Table]:  # noqa: ARG001 (it is arithmetic: both forms are the same)
    """Return the table of energies."""
    columns = [
        "network",
        "way",
        "operations, G",
        "GB of memory",
        "J of operations",
        "J of moving",
        "J",
        "share",
    ]
    table = Table("Energy of a step by published energies at 45 nm", columns)
    for name, network in NETWORKS.items():
        dense = sum(step(network, Way(sparse=False, tiled=False)).joules())
        for way, (how, precision) in WAYS.items():
            costs = step(network, how)
            computed, moved = costs.joules(precision)
            cells = [f"{2 * costs.products / 1e9:,.1f}", f"{costs.memory_bytes / 1e9:.2f}"]
            cells += [f"{computed:.3f}", f"{moved:.3f}", f"{computed + moved:.3f}"]
            table.rows.append([name, way, *cells, f"{(computed + moved) / dense:.0%}"])
    return [table]

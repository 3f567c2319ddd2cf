"""A network: its layers, losses and weights, cut into shards and tiles.

`build.py` makes a `Network` from a layout. The network knows no rank: everything that crosses shards goes
through an `Exchange`, which `parallel` implements for one or several processes. `preparation.py` turns a
batch into what layers read, `network.py` runs forward, and `wide_loss.py` makes the step of a wide output.
"""

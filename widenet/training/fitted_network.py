"""The network of a run's final weights, whose neighbourhood terms may have been fitted to them."""

import json
from dataclasses import replace
from typing import Any

from widenet.model.network import Network
from widenet.parallel.group import by_some
from widenet.spec.network import NetworkSpec
from widenet.training.checkpoint import Checkpoint
from widenet.training.existing_run import FITTED
from widenet.training.publication import leads_folder
from widenet.training.run_directory import RunDirectory
from widenet.training.run_files import write_whole
from widenet.training.saved_facts import WeightsFacts


def with_network_of(run: RunDirectory, weights: Checkpoint) -> RunDirectory:
    """Return a run with the network of its weights; terms are fitted to the final ones alone."""
    if "state" in weights.facts:
        return run
    spec = fitted_network(WeightsFacts.of(weights.facts))
    return run if spec is None else replace(run, network=spec, _bound=None)


def fitted_network(facts: WeightsFacts) -> NetworkSpec | None:
    """Return the network of final weights if its terms were fitted to them, else None."""
    return None if facts.network is None else NetworkSpec.of(facts.network, NetworkSpec.usual_name)


def saved_fit(run: RunDirectory, network: Network) -> dict[str, Any]:
    """Write the document of a network with fitted terms, for people; return the facts for its weights."""
    exchange, text = network.exchange, network.spec.to_json()
    leads = leads_folder(exchange, run.mirror)
    by_some(exchange, leads, lambda: write_whole(run.path / FITTED, text.encode()), "fitted network")
    return {"network": json.loads(text)}

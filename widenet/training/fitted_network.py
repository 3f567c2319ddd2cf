"""The network of a run's final weights, whose neighbourhood terms may have been fitted to them."""

from dataclasses import replace
from hashlib import sha256

from widenet.checkpoint import Checkpoint
from widenet.model.network import Network
from widenet.parallel.group import by_some
from widenet.publication import leads_folder
from widenet.spec.network import NetworkSpec
from widenet.training.existing_run import FITTED
from widenet.training.run_directory import RunDirectory
from widenet.training.run_files import write_whole


def fitted(run: RunDirectory) -> NetworkSpec | None:
    """Return a run's network with the terms that were fitted when its training ended; None without any."""
    path = run.path / FITTED
    return NetworkSpec.read(path) if path.is_file() else None


def with_network_of(run: RunDirectory, weights: Checkpoint) -> RunDirectory:
    """Return a run with the network of its weights; terms are fitted to the final ones alone."""
    spec = None if "state" in weights.facts else fitted(run)
    return run if spec is None else replace(run, network=spec, _bound=None)


def with_fitted(run: RunDirectory, network: Network) -> RunDirectory:
    """Write the document of a network with fitted terms; return the run, which now has it."""
    exchange, text = network.exchange, network.spec.to_json().encode()
    leads = leads_folder(exchange, run.mirror)
    by_some(exchange, leads, lambda: write_whole(run.path / FITTED, text), "fitted network")
    return replace(run, digests={**run.digests, FITTED: sha256(text).hexdigest()})

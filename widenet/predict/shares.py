"""What each feature of an example adds to a logit, for networks that are linear up to a length."""

import torch
from torch import Tensor

from widenet.errors import FitError
from widenet.model.network import Network
from widenet.model.operands import SHORTEST
from widenet.model.preparation import scaled
from widenet.predict.terms import NearFeatures
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec


@torch.no_grad()
def shares(network: Network, example: SparseBatch, output_name: str, unit: int) -> Tensor:
    """Return what each feature of an example adds to the logit of a unit, float64 [Z].

    Their sum is the logit without the biases of all layers. Under "cosine" the length of the example's vector
    divides all of them. A neighbourhood term, which is no sum, is divided in proportion to the similarities.

    Args:
        network: The network; all its processes must call this.
        example: One example of the field that the network reads, in the host's memory.
        output_name: Name of the output.
        unit: The unit.

    Raises:
        FitError: The network is not linear.
    """
    if reason := why_no_shares(network.spec):
        rule = "A network can be explained if it reads one field and is linear up to its logits"
        raise FitError(f"{rule}; {reason}")
    layer = network.spec.inputs[0]
    if layer.values == "ignore":
        example = example.with_values(None)
    # The whole example, each of its features alone, and none.
    indptr = torch.cat([torch.tensor([0]), example.num_entries + torch.arange(example.num_entries + 1)])
    indptr = torch.cat([indptr, indptr[-1:]])
    values = None if example.values is None else example.values.repeat(2)
    batch = SparseBatch(indptr, example.indices.repeat(2), values)
    activity = network.forward(network.prepare({layer.field: batch}, None), None)
    output, factors = network.output_for(output_name, activity), network.damping.get(layer.name)
    factors_F = None if factors is None else factors.cpu()
    together, alone = scaled(layer, batch, factors_F, in_training=False).values_or_ones().double().chunk(2)
    ratio_Z1 = torch.where(alone == 0, 0.0, together / alone)[:, None].to(network.device)
    if output_name in activity.features:
        inputs_EH = torch.zeros(batch.num_examples, 0, device=network.device)
    else:
        inputs_EH = torch.cat([activity.values[name] for name in network.spec.sources(output.spec)], dim=1)
    if output.spec.cosine is not None:
        length = float(inputs_EH[0].norm())
        inputs_EH = inputs_EH * (0.0 if length <= SHORTEST else 1 / (length * output.spec.cosine.finished))
    shard, row = unit % output.weight.shards.count, unit // output.weight.shards.count
    own = None
    if shard in output.weight.parts:
        logits_E1 = output.tile(shard, row, row + 1).products(inputs_EH)
        term_Z = logits_E1.new_zeros(example.num_entries)
        if output.spec.neighbourhood is not None:
            term = NearFeatures(output.spec.neighbourhood, output.lists, example.to(network.device))
            term_Z = term.shares(shard, row)
        own = torch.cat([logits_E1[:, 0], term_Z])
    shape = (batch.num_examples + example.num_entries,)
    found = output.exchange.fetch(shard, own, shape, network.device, output.where).double()
    logit_E, term_Z = found[: batch.num_examples], found[batch.num_examples :]
    share_Z: Tensor = (logit_E[1:-1] - logit_E[-1]) * ratio_Z1[:, 0] + term_Z
    return share_Z.cpu()


def why_no_shares(spec: NetworkSpec) -> str | None:
    """Return what keeps the logits of a network from being explained; None if they can be."""
    if len(spec.inputs) > 1:
        return f"it has {len(spec.inputs)} inputs"
    reasons = ((layer.name, layer.why_not_linear()) for layer in spec.hidden)
    return next((f'"{name}" {reason}' for name, reason in reasons if reason), None)

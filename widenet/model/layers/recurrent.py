"""The recurrent layer."""

import torch
from torch import Tensor

from widenet.model.dropout import masked
from widenet.model.layers import Flow, LayerKind
from widenet.model.positions import Positions
from widenet.model.product import Factor
from widenet.model.recurrence import CELLS, states
from widenet.randomness import StepRandom
from widenet.spec.sequential import RecurrentLayer


def forward(
    spec: RecurrentLayer,
    sums: list[Tensor],
    weight: Factor,
    bias: Tensor | None,
    positions: Positions,
    random: StepRandom | None,
) -> Tensor:
    """States float32 [N, H], as the next layers see them.

    Differentiable.

    sums: one product of a source and its weights a source, float32 [N, G] each. weight: [G, H], of the
    state before.
    random: the step's random numbers; None outside training.
    """
    total_NG = sum(sums[1:], sums[0])
    carried = None
    if bias is not None:
        total_NG = total_NG + bias[: spec.sums]
        if spec.cell == "gru":
            carried = torch.cat([torch.zeros(2 * spec.units, device=bias.device), bias[spec.sums :]])
    state_NH = states(CELLS[spec.cell], total_NG, weight, carried, positions.sizes)
    return masked(state_NH, random, spec.name, spec.dropout)


class Recurrent(LayerKind[RecurrentLayer]):
    """Layers that go along a sequence."""

    def forward(self, layer: RecurrentLayer, flow: Flow) -> Tensor:
        """See `LayerKind.forward`."""
        assert flow.positions is not None
        assert flow.state is not None
        bias = flow.tensor(f"{layer.name} bias") if layer.bias else None
        state_NH = forward(layer, flow.sums, flow.state, bias, flow.positions, flow.random)
        return sum(flow.skips, state_NH)

    def first_numbers(self, layer: RecurrentLayer, name: str, count: int) -> Tensor:
        """Return the first biases: 1 for an lstm's forget gates, 0 for all others.

        The 1 is from Jozefowicz et al., "An empirical exploration of recurrent network architectures", ICML
        2015. A gru's last biases belong to the state before.
        """
        bias = torch.zeros(count)
        if layer.cell == "lstm":
            bias[layer.units : 2 * layer.units] = 1
        return bias

    def fan_out(self, layer: RecurrentLayer, sums: int) -> int:
        """Return the units, whatever the gates."""
        return layer.units


KIND = Recurrent()

"""Definitions of the operations of wide layers in plain torch: tests compare all faster code with them."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels.constants import LEAST, PER_LOG_TWO, PIECE, POWER_OF_TWO, TO_WHOLE
from widenet.sparse import SparseBatch
from widenet.spec.activations import Activation, Elu, LeakyRelu
from widenet.spec.layers import OutputLayer
from widenet.spec.losses import (
    L1,
    L2,
    CosineContrastive,
    CrossEntropy,
    DataScaledMarginalCrossEntropy,
    Hinge,
    L2Hinge,
    ScaledMarginalCrossEntropy,
)

_TINY = 1e-300
"""The smallest divisor."""


def gather_sum(batch: SparseBatch, weight_FH: Tensor) -> Tensor:
    """Sum, for every example, the weight rows of its features, times their values.

    The order of addition is the storage order within an example.

    Args:
        batch: E examples over F features.
        weight_FH: float32.

    Returns:
        float32 [E, H]. An example without features gives zeros; duplicate features add up.
    """
    rows_ZH = weight_FH.index_select(0, batch.indices)
    if batch.values is not None:
        rows_ZH = rows_ZH * batch.values[:, None]
    return weight_FH.new_zeros(batch.num_examples, weight_FH.shape[1]).index_add_(
        0, batch.example_of_entry(), rows_ZH
    )


def row_gradient(batch: SparseBatch, gradient_EH: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of `gather_sum` to the weight, only for the rows that the batch touches.

    The order of addition is by example, then storage order.

    Args:
        batch: E examples over F features.
        gradient_EH: Gradient to the sums, float32.

    Returns:
        Features int64 [U], ascending, and their gradient rows float32 [U, H].
    """
    features_U, position_Z = torch.unique(batch.indices, sorted=True, return_inverse=True)
    rows_ZH = gradient_EH.index_select(0, batch.example_of_entry())
    if batch.values is not None:
        rows_ZH = rows_ZH * batch.values[:, None]
    gradient_UH = gradient_EH.new_zeros(len(features_U), gradient_EH.shape[1]).index_add_(
        0, position_Z, rows_ZH
    )
    return features_U.long(), gradient_UH


def row_update(
    weight_FH: Tensor,
    state: Mapping[str, Tensor],
    batch: SparseBatch,
    gradient_EH: Tensor,
    step: Callable[[Tensor, Tensor, dict[str, Tensor]], None],
) -> None:
    """Make an optimizer's step, in place, of the rows that a batch touches; other rows do not change.

    Args:
        weight_FH: Floats.
        state: The optimizer's tensors, of the weight's shape.
        batch: E examples over F features.
        gradient_EH: Gradient to the sums of `gather_sum`.
        step: Makes the step, in place, from rows [U, H], their gradient and their state; includes penalties.
    """
    features_U, gradient_UH = row_gradient(batch, gradient_EH)
    weight_UH = weight_FH[features_U]
    state_UH = {name: tensor[features_U] for name, tensor in state.items()}
    step(weight_UH, gradient_UH, state_UH)
    weight_FH[features_U] = weight_UH
    for name, tensor in state.items():
        tensor[features_U] = state_UH[name]


def wide_loss(
    output: OutputLayer,
    direct_EH: Tensor,
    weight_LH: Tensor,
    bias_L: Tensor,
    targets: Tensor | SparseBatch,
    weight_E: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the loss [] of an output, and its gradients to the hidden vectors, the weight and the biases.

    All tensors have one type; the definition uses float64.

    Args:
        output: The output layer.
        direct_EH: The hidden vectors that enter it.
        weight_LH: Its weight.
        bias_L: Its biases.
        targets: [E, L], or sparse; units that are not stored have the target 0.
        weight_E: Per-example loss weights.
    """
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (direct_EH, weight_LH, bias_L)]
    z_EL = leaves[0] @ leaves[1].T + leaves[2]
    t_EL, stored_EL = dense_targets(targets, z_EL)
    losses_E = example_losses(output, activation(output.activation, z_EL), t_EL, stored_EL)
    loss = (losses_E * weight_E).sum()
    gradients = torch.autograd.grad(loss, leaves)
    return loss.detach(), gradients[0], gradients[1], gradients[2]


def dense_targets(targets: Tensor | SparseBatch, like_EL: Tensor) -> tuple[Tensor, Tensor]:
    """Return the targets as numbers [E, L], and which of them are stored, bool [E, L]."""
    if isinstance(targets, Tensor):
        return targets.to(like_EL), torch.ones_like(like_EL, dtype=torch.bool)
    t_EL, stored_EL = torch.zeros_like(like_EL), torch.zeros_like(like_EL, dtype=torch.bool)
    places = targets.example_of_entry(), targets.indices.long()
    t_EL.index_put_(places, targets.values_or_ones().to(like_EL), accumulate=True)
    stored_EL[places] = True
    return t_EL, stored_EL


def activation(spec: Activation, z: Tensor) -> Tensor:
    """Return the activations of logits [E, units]."""
    match spec:
        case LeakyRelu(slope=slope):
            return torch.maximum(z, slope * z)
        case Elu(alpha=alpha, scale=scale):
            return scale * torch.where(z > 0, z, alpha * (torch.exp(z.clamp(max=0)) - 1))
    return _PLAIN_ACTIVATIONS[spec.kind](z)


_PLAIN_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda z: 1 / (1 + torch.exp(-z)),
    "tanh": lambda z: (torch.exp(2 * z) - 1) / (torch.exp(2 * z) + 1),
    "relu": lambda z: torch.where(z > 0, z, 0.0),
    "selu": lambda z: (
        1.0507009873554805 * torch.where(z > 0, z, 1.6732632423543772 * (torch.exp(z.clamp(max=0)) - 1))
    ),
    "softplus": lambda z: torch.log(1 + torch.exp(z)),
    "softsign": lambda z: z / (1 + z.abs()),
    "linear": lambda z: z,
    "gelu": lambda z: z * 0.5 * (1 + torch.erf(z / 2**0.5)),
    "silu": lambda z: z / (1 + torch.exp(-z)),
    "softmax": lambda z: torch.exp(z) / torch.exp(z).sum(dim=1, keepdim=True),
    "relu_max": lambda z: z * (z > 0) / (z * (z > 0)).sum(dim=1, keepdim=True).clamp_min(_TINY),
    "linear_max": lambda z: z / z.abs().sum(dim=1, keepdim=True),
}
"""The activations without parameters, as documented."""


def example_losses(
    output: OutputLayer, a: Tensor, t: Tensor, stored: Tensor, stands: Tensor | None = None
) -> Tensor:
    """Return the loss of every example, [E].

    Args:
        output: The output layer.
        a: Activations [E, L].
        t: Targets [E, L].
        stored: Which targets are stored, bool [E, L].
        stands: Number of units that each unit represents if it is not a stored target, [L]; None: 1.
    """
    loss, is_softmax = output.loss, output.activation.kind == "softmax"
    counted = torch.ones_like(a[:1]) if stands is None else stands
    if isinstance(loss, CosineContrastive):
        positive, num = t > 0, (t > 0).sum(dim=1).to(a.dtype)
        pulled = ((1 - a) * positive).sum(dim=1) / num.clamp_min(1)
        pushes = (a - loss.margin).clamp_min(0) * ~positive * torch.where(stored, 1.0, counted)
        pushed = pushes.sum(dim=1) / (a.shape[1] - num).clamp_min(1)
        return pulled + loss.negative_weight * pushed
    cells = _softmax_cells(loss, a, t) if is_softmax else None
    cells = _cells(loss, a, t, stored) if cells is None else cells
    return torch.where(stored, cells, cells * counted).sum(dim=1)


def _softmax_cells(loss: object, a: Tensor, t: Tensor) -> Tensor | None:
    """Return the cross-entropies under a softmax, unit by unit [E, L]; None for other losses."""
    share = t / t.sum(dim=1, keepdim=True).clamp_min(_TINY)
    match loss:
        case CrossEntropy():
            q = share if loss.targets == "share" else t
            return torch.where(q > 0, -q * torch.log(a), 0.0)
        case ScaledMarginalCrossEntropy():
            by_data = isinstance(loss, DataScaledMarginalCrossEntropy)
            strength = loss.one_scale * (t if by_data else share)
            return torch.where((t > 0) & (a < loss.one_target), -strength * torch.log(a), 0.0)
    return None


def _cells(loss: object, a: Tensor, t: Tensor, stored: Tensor) -> Tensor:
    """Return the loss of each unit, [E, L]."""
    match loss:
        case CrossEntropy():
            return -t * torch.log(a) - (1 - t) * torch.log(1 - a)
        case ScaledMarginalCrossEntropy():
            by_data = isinstance(loss, DataScaledMarginalCrossEntropy)
            strength = loss.one_scale * (t if by_data else torch.ones_like(t))
            ones = torch.where(a < loss.one_target, -strength * torch.log(a), 0.0)
            zeros = torch.where(a > loss.zero_target, -loss.zero_scale * torch.log(1 - a), 0.0)
            return torch.where(t > 0, ones, zeros)
        case L1():
            return (a - t).abs()
        case L2():
            return (a - t) ** 2 / 2
        case Hinge():
            return (1 - torch.where(stored, t, -1.0) * a).clamp_min(0)
        case L2Hinge():
            distance = a - t.abs()
            return torch.where(t > 0, distance.clamp_max(0), distance.clamp_min(0)) ** 2 / 2
    raise AssertionError(f"no definition of {loss!r}")


def wide_top_k(logits_EL: Tensor, excluded: SparseBatch | None, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest logits of every example and their units.

    Args:
        logits_EL: float32.
        excluded: Units to leave out, per example.
        k: Number of units.

    Returns:
        Logits float32 [E, k], descending, and units int64 [E, k]. The lower of two equal units comes first.
        Missing entries are -inf and -1.
    """
    logits_EL = logits_EL.clone()
    if excluded is not None:
        logits_EL[excluded.example_of_entry(), excluded.indices.long()] = -torch.inf
    top_EK, units_EK = torch.sort(logits_EL, dim=1, descending=True, stable=True)
    top_EK, units_EK = top_EK[:, :k], units_EK[:, :k]
    return top_EK, torch.where(top_EK == -torch.inf, -1, units_EK)


def softmax_sum(logits_ET: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest logit of every example, and the sum of exp(logit - largest) over the units.

    Each operation rounds to float32 and none is fused, so the bits are the same on every processor, for any
    number of examples. exp(x) is 2^(n + f) for x / log(2) = n + f, with n whole. The shares of `PIECE` units
    are folded in half until 8 are left, which are added in pairs, in float64; pieces are added in order.

    Args:
        logits_ET: float32, of at least one unit.

    Returns:
        The largest logits, float32 [E], and the sums, float64 [E].
    """
    peak_E = logits_ET.amax(dim=1)
    apart_ET = pad(logits_ET - peak_E[:, None], (0, -logits_ET.shape[1] % PIECE), value=-torch.inf)
    power_ET = apart_ET.clamp(min=LEAST) * PER_LOG_TWO
    shifted_ET = power_ET + TO_WHOLE
    f_ET = power_ET - (shifted_ET - TO_WHOLE)
    series_ET = torch.full_like(f_ET, POWER_OF_TWO[0])
    for coefficient in POWER_OF_TWO[1:]:
        series_ET = series_ET * f_ET + coefficient
    bits_ET = series_ET.view(torch.int32) + (shifted_ET.view(torch.int32) << 23)
    share_ECP = bits_ET.view(torch.float32).view(len(logits_ET), -1, PIECE)
    while (half := share_ECP.shape[2] // 2) >= 8:
        share_ECP = share_ECP[..., :half] + share_ECP[..., half:]
    share_ECP = share_ECP.double()
    while share_ECP.shape[2] > 1:
        share_ECP = share_ECP[..., 0::2] + share_ECP[..., 1::2]
    sum_E = torch.zeros_like(peak_E, dtype=torch.float64)
    for piece in range(share_ECP.shape[1]):
        sum_E += share_ECP[:, piece, 0]
    return peak_E, sum_E

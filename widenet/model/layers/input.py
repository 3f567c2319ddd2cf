"""The input layer: what a field's features become before the first weight."""

import math

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.fixed_point import sum_by
from widenet.kernels.powers import power
from widenet.model.dropout import masked
from widenet.model.step_random import StepRandom
from widenet.sparse import SparseBatch
from widenet.spec.layers import InputLayer


def damping(spec: InputLayer, counts: np.ndarray, units: int) -> Tensor:
    """Return the factors of all features, float32 [units]: (count / mean count)^-popularity_damping.

    Features without a count have the factor 1.
    """
    seen = counts > 0
    share = torch.from_numpy(counts[seen] / counts[seen].mean())
    factors = torch.ones(units)
    factors[: len(counts)][torch.from_numpy(seen)] = power(share, -spec.popularity_damping).float()
    return factors


def hide(spec: InputLayer, batch: SparseBatch, random: StepRandom) -> tuple[SparseBatch, SparseBatch]:
    """Return the entries that `denoise` keeps, as the layer takes them, and the hidden ones as stored."""
    kept_Z = random.keep_mask(
        f"denoise/{spec.name}", (batch.num_entries,), spec.denoise, batch.indices.device
    )
    stays = (batch.with_values(None) if spec.values == "ignore" else batch).keep(kept_Z)
    if spec.denoise_rescale:
        stays = stays.with_values(stays.values_or_ones() / (1 - spec.denoise))
    return stays, batch.keep(~kept_Z)


_MOST_SQUARES = 2**24
"""Entries of a batch outside training up to which its size does not reach the bits of an example's length."""


def scaled(
    spec: InputLayer, batch: SparseBatch, factors_F: Tensor | None, in_training: bool = True
) -> SparseBatch:
    """The batch with the values that enter the network."""
    if factors_F is not None:
        batch = batch.with_values(batch.values_or_ones() * factors_F[batch.indices.long()])
    if spec.scale == "none":
        return batch
    if spec.scale == "unit":
        values_Z, examples_Z = batch.values_or_ones(), batch.example_of_entry()
        num_terms = None if in_training else max(_MOST_SQUARES, batch.num_entries)
        squares_E = sum_by(values_Z * values_Z, examples_Z, batch.num_examples, num_terms)
        return batch.with_values(values_Z * squares_E.clamp_min(1e-30).rsqrt()[examples_Z])
    counts_E = np.diff(batch.indptr.numpy())
    divisor_E = np.maximum(counts_E, 1).astype(np.float32)
    divisor_Z = np.repeat(divisor_E if spec.scale == "mean" else np.sqrt(divisor_E), counts_E)
    values = np.float32(1) if batch.values is None else batch.values.numpy()
    return batch.with_values(torch.from_numpy(values / divisor_Z))


def scaled_dense(spec: InputLayer, values_EN: Tensor, random: StepRandom | None) -> Tensor:
    """A dense field as it enters the network."""
    values_EN = masked(values_EN, random, spec.name, spec.dropout)
    match spec.scale:
        case "mean":
            return values_EN / values_EN.shape[1]
        case "rsqrt":
            return values_EN / math.sqrt(values_EN.shape[1])
        case "unit":
            return torch.nn.functional.normalize(values_EN, dim=1)
        case _:
            return values_EN

"""What CUDA computes in an order that nobody knows: refused where the order would show."""

import torch
from torch import Tensor

# fmt: off
NEVER = {
    "histc", "put_", "kthvalue", "median", "_ctc_loss", "_embedding_bag_backward",
    "_embedding_bag_dense_backward", "embedding_dense_backward", "convolution_backward",
    "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "avg_pool3d_backward",
    "_adaptive_avg_pool2d_backward", "replication_pad1d_backward", "reflection_pad1d_backward",
    "grid_sampler_2d_backward", "nll_loss2d_forward",
}
# fmt: on
"""By the documentation of torch.use_deterministic_algorithms, and what only oneDNN or cuDNN has."""

ADDING = {"cumsum", "cumprod", "scatter_add", "index_add"}
"""Exact on integers, in no fixed order on floats; of the last two where a place is named twice."""

WRITING = {"index_put": (1, 2), "_index_put_impl": (1, 2), "index_copy": (2, 3), "scatter": (2, 3)}
"""Where two write to one place, anyone may be the last: places and values among the arguments."""


class OrderError(RuntimeError):
    """An operation whose result depends on the order in which a device's threads come."""


def check_twice(func, name: str, args, kwargs) -> None:
    """Raise OrderError where CUDA would not promise the same bits twice."""
    plain = name.rstrip("_")
    if name in NEVER or plain in NEVER:
        raise OrderError(f"{name} has no fixed order on CUDA")
    floats = [arg for arg in args if isinstance(arg, Tensor) and arg.is_floating_point()]
    if (
        plain in ADDING
        and floats
        and not (plain.endswith("add") and len(args[2].unique()) == args[2].numel())
    ):
        raise OrderError(f"{name} adds floats in no fixed order on CUDA")
    if plain == "bincount" and ((*args, None)[1] is not None or kwargs.get("weights") is not None):
        raise OrderError("bincount adds weights in no fixed order on CUDA")
    if plain == "scatter_reduce" and args[4] not in ("amax", "amin") and floats:
        raise OrderError(f"scatter_reduce by {args[4]} has no fixed order on CUDA")
    if plain == "sort" and not kwargs.get("stable") and _has_equals(args[0]):
        raise OrderError("an unstable sort leaves equals in no fixed order")
    if plain in WRITING:
        _check_places(func, plain, args)


def _has_equals(numbers: Tensor) -> bool:
    ordered = numbers.sort(stable=True).values
    return ordered.numel() > 1 and bool((ordered[..., 1:] == ordered[..., :-1]).any())


def _check_places(func, plain: str, args) -> None:
    """Write in reversed order too: the result must be the same."""
    where, what = WRITING[plain]
    values, several = args[what], isinstance(args[where], list | tuple)
    given = args[where] if several else [args[where]]
    places = [place for place in given if place is not None]
    adds = len(args) > 3 and plain.endswith(("put", "impl")) and args[3]
    if adds or not isinstance(values, Tensor) or any(place.dtype == torch.bool for place in places):
        return
    if not values.dim() or {len(place) for place in places if place.dim() == 1} != {values.shape[0]}:
        return
    own, turned = [args[0].clone(), *args[1:]], [args[0].clone(), *args[1:]]
    turned[what] = values.flip(0)
    flipped = [None if place is None else place.flip(0) for place in given]
    turned[where] = flipped if several else flipped[0]
    func(*own)
    func(*turned)
    if not torch.equal(own[0].nan_to_num(), turned[0].nan_to_num()):
        raise OrderError(f"{func}: two values for one place, and nobody knows which comes last")

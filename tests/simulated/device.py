"""A CUDA device that is none: its tensors hold numbers on a CPU, say that they are on "cuda:0", and refuse
what CUDA refuses.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.simulated import pinned, streams
from tests.simulated.refusals import check_twice

ROOT = str(Path(__file__).parent.parent.parent / "widenet")
DEVICE = torch.device("cuda", 0)
FACTORIES = ("zeros", "ones", "empty", "full", "arange", "tensor", "eye", "as_tensor")
# fmt: off
WAITING = {
    "_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "unique_consecutive", "masked_select",
    "equal", "bincount",
}
# fmt: on

PRODUCTS = {"mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "addmv", "mv", "dot"}

products: Counter[str] = Counter()
"""How many matrix products there were, by the rounding of their operands."""
WITHOUT_WORK = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view"}
"""Operations that launch nothing, besides views."""

waits: Counter[tuple[str, str]] = Counter()
"""How often the host waited for the device: by the name of the stream that it waited for, and the place in
widenet.
"""
launches: Counter[tuple[str, str, str]] = Counter()
"""Torch's operations, copies and Triton's kernels that were launched: by the name of the stream, their own
name, and the place in widenet.
"""


class OnDevice(Tensor):
    """A tensor on the device.

    Refused are operations on tensors of two devices, memory in the hands of code for a CPU, operations whose
    result CUDA does not promise twice (`refusals`), and memory of another stream that nobody has waited for
    (`streams`).
    """

    held: Tensor
    memory: streams.Memory
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnDevice":
        own = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device="cpu",
        )
        own.held, own.memory = held, streams.memory_of(held)
        return own

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        del types
        return compute(func, args, kwargs or {})

    @property
    def device(self):
        return DEVICE

    @property
    def is_cuda(self):
        return True

    def to(self, *args, **kwargs):
        device, dtype, _, _ = parsed(*args, **kwargs)
        found = self if dtype in (None, self.dtype) else PLAIN["to"](self, dtype)
        return found if device is None or device.type == "cuda" else found.cpu().clone()

    def cpu(self):
        wait()
        launch("copy")
        streams.read(self.memory)
        return self.held.detach().clone()

    def tolist(self):
        return self.cpu().tolist()

    def numpy(self, *_, **__):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    __array__ = numpy

    def data_ptr(self):
        raise RuntimeError("memory of a device in the hands of code for a CPU")

    def new_tensor(self, data, **options):
        return torch.tensor(data, **{"dtype": self.dtype, "device": DEVICE, **options})

    def record_stream(self, stream):
        self.memory.users.add(stream)

    def __repr__(self, **_):
        return f"OnDevice({self.held!r})"


PLAIN: dict[str, Callable[..., Tensor]] = {name: getattr(torch, name) for name in FACTORIES}
PLAIN |= {name: getattr(Tensor, name) for name in ("to", "pin_memory")}


def parsed(*args, **kwargs):
    """What `Tensor.to` is asked for: device, type, whether it need not wait."""
    if args and isinstance(args[0], Tensor):
        return args[0].device, args[0].dtype, False, None
    return torch._C._nn._parse_to(*args, **{name: value for name, value in kwargs.items() if name != "copy"})


def wait() -> None:
    """The host waits for the device."""
    pinned.arrive(streams.current())
    waits[streams.current().name, place()] += 1


def launch(name: str) -> None:
    """Something is launched on the device."""
    launches[streams.current().name, name, place()] += 1


def place() -> str:
    """The innermost place in widenet that is at work."""
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(ROOT):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename[len(ROOT) + 1 :]}:{frame.f_code.co_name}"


class Schema(NamedTuple):
    """What torch says of an operation: its name, whether it gives another view of its argument, and which
    arguments it writes to.
    """

    name: str
    is_view: bool
    written: list[int]


@cache
def schema_of(func) -> Schema:
    """Torch makes the objects of a schema anew each time it is asked."""
    aliases = [given.alias_info for given in func._schema.returns]
    return Schema(
        func._schema.name.removeprefix("aten::"),
        bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases),
        [
            place
            for place, argument in enumerate(func._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ],
    )


def tensors_in(value) -> Iterator[Tensor]:
    """The tensors among the arguments of an operation, which are in lists at most; torch's own walk through
    trees of any kind takes as long as the operation.
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)


def with_tensors(change: Callable[[Tensor], Tensor], value):
    """Arguments or results with other tensors."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)([with_tensors(change, each) for each in value])
    return value


def held_in(tensor: Tensor) -> Tensor:
    """The numbers of a tensor, as a CPU holds them."""
    return tensor.held if isinstance(tensor, OnDevice) else tensor


def compute(func, args, kwargs):
    """An operation of which some tensors are on the device."""
    name, is_view, written = schema_of(func)
    leaves = [*tensors_in(args), *tensors_in([*kwargs.values()])]
    if name.rstrip("_") == "copy":
        return copied(func, args, kwargs)
    given = [leaf for leaf in leaves if isinstance(leaf, OnDevice)]
    strangers = [leaf for leaf in leaves if not isinstance(leaf, OnDevice)]
    if strangers:
        check_devices(func, args, strangers)
    for tensor in given:
        streams.read(tensor.memory)
    own_args = with_tensors(held_in, args)
    own_kwargs = {key: with_tensors(held_in, value) for key, value in kwargs.items()}
    work = _ALIKE.get(func, func)
    if name in PRODUCTS:
        products[_rounding(func, given)] += 1
    check_twice(func, name, own_args, own_kwargs)
    masks = name.startswith("index") and any(leaf.dtype == torch.bool for leaf in tensors_in(args[1]))
    if name in WAITING or masks or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        wait()
    if name not in WITHOUT_WORK and not is_view:
        launch(name)
    targets = [kwargs[key] for key in {"out", "self"} & set(kwargs)]
    targets += [args[place] for place in written if place < len(args) and isinstance(args[place], OnDevice)]
    found = work(*own_args, **own_kwargs)
    known = {id(tensor.held): tensor for tensor in given}
    for tensor in targets:
        streams.write(tensor.memory)
    return with_tensors(lambda tensor: known[id(tensor)] if id(tensor) in known else OnDevice(tensor), found)


def _rounding(func, given: list[OnDevice]) -> str:
    """How CUDA rounds the operands of a product, by the settings of now; one of bfloat16 gives float32."""
    matmul = torch.backends.cuda.matmul
    assert not matmul.allow_bf16_reduced_precision_reduction
    assert not matmul.allow_fp16_reduced_precision_reduction
    if torch.bfloat16 in {tensor.dtype for tensor in given}:
        assert func in _WIDENED, f"{func} gives bfloat16"
        return "bfloat16"
    return "tf32" if matmul.allow_tf32 else "float32"


def _widened_product(left: Tensor, right: Tensor, out_dtype: torch.dtype) -> Tensor:
    """What CUDA computes of bfloat16 operands where the result is float32; torch has no such product on a
    CPU.
    """
    assert (left.dtype, right.dtype, out_dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    return left.float() @ right.float()


def _one_by_one(left: Tensor, right: Tensor, *out_dtype: torch.dtype) -> Tensor:
    """Products in one launch: those of shards have the bits that each has alone."""
    if not place().startswith("model/operands.py"):
        return torch.bmm(left, right)
    multiply = _widened_product if out_dtype else torch.mm
    return torch.stack([multiply(*each, *out_dtype) for each in zip(left, right, strict=True)])


def _adding_one_by_one(
    total: Tensor, left: Tensor, right: Tensor, *out_dtype: torch.dtype, out: Tensor
) -> Tensor:
    """Add products to what is there in one launch, as `_one_by_one`."""
    assert total is out
    return out.add_(_one_by_one(left, right, *out_dtype))


def _widened_product_into(left: Tensor, right: Tensor, out_dtype: torch.dtype, out: Tensor) -> Tensor:
    return out.copy_(_widened_product(left, right, out_dtype))


_WIDENED = (
    torch.ops.aten.mm.dtype_out,
    torch.ops.aten.mm.dtype,
    torch.ops.aten.bmm.dtype,
    torch.ops.aten.baddbmm.dtype_out,
)
_ALIKE = {
    torch.ops.aten.mm.dtype_out: _widened_product_into,
    torch.ops.aten.mm.dtype: _widened_product,
    torch.ops.aten.bmm.dtype: _one_by_one,
    torch.ops.aten.bmm.default: _one_by_one,
    torch.ops.aten.baddbmm.out: _adding_one_by_one,
    torch.ops.aten.baddbmm.dtype_out: _adding_one_by_one,
}
"""What a CPU computes in place of an operation."""


def check_devices(func, args, strangers: list[Tensor]) -> None:
    """Torch takes single numbers of a CPU into an operation on single numbers, as long as the result is
    not theirs.
    """
    first_is_ours = not (
        args and isinstance(args[0], Tensor) and not isinstance(args[0], OnDevice) and func._schema.is_mutable
    )
    takes = torch.Tag.pointwise in func.tags or func._schema.name in (
        "aten::index_put_",
        "aten::_index_put_impl_",
        "aten::fill_",
    )
    if not (first_is_ours and takes and all(tensor.dim() == 0 for tensor in strangers)):
        raise RuntimeError(
            f"{func}: expected all tensors to be on the same device, but found at least two devices, cuda:0"
            " and cpu"
        )


def copied(func, args, kwargs):
    """A copy, which may go from one device to the other."""
    target, source = args[0], args[1]
    in_time = not (*args, False)[2]
    arrives_later = not (in_time or isinstance(target, OnDevice)) and pinned.is_pinned(target)
    leaves_later = not (in_time or isinstance(source, OnDevice)) and pinned.is_pinned(source)
    within_device = isinstance(target, OnDevice) and isinstance(source, OnDevice)
    if not (arrives_later or leaves_later or within_device):
        wait()
    launch("copy")
    if not within_device:
        direction = "in" if isinstance(target, OnDevice) else "out"
        pinned.crossed[direction, place()] += source.numel() * source.element_size()
    for tensor in (target, source):
        if isinstance(tensor, OnDevice):
            streams.read(tensor.memory)
        else:
            pinned.read(tensor)
    own = with_tensors(held_in, args)
    if arrives_later:
        pinned.start_copy(target, own[1])
    else:
        func(*own, **kwargs)
    if isinstance(target, OnDevice):
        streams.write(target.memory)
    return target


def _factory(name: str) -> Callable[..., Tensor]:
    def make(*args, **options):
        device = options.get("device")
        if options.pop("pin_memory", False):
            return _pinned(PLAIN[name](*args, **options))
        if device is None or torch.device(device).type != "cuda":
            return PLAIN[name](*args, **options)
        if name in ("tensor", "as_tensor") and not isinstance(args[0], OnDevice):
            wait()
        if name not in WITHOUT_WORK:
            launch(name)
        return OnDevice(PLAIN[name](*args, **{**options, "device": "cpu"}))

    return make


def _to(tensor: Tensor, *args, **kwargs) -> Tensor:
    device, dtype, at_once, _ = parsed(*args, **kwargs)
    if device is None or device.type != "cuda":
        return PLAIN["to"](tensor, *args, **kwargs)
    if not (at_once and pinned.is_pinned(tensor)):
        wait()
    launch("copy")
    pinned.read(tensor)
    pinned.crossed["in", place()] += tensor.numel() * tensor.element_size()
    return OnDevice(PLAIN["to"](tensor, dtype or tensor.dtype, copy=True))


def _pinned(tensor: Tensor) -> Tensor:
    copy = tensor.clone()
    copy.pinned = True
    return copy


@contextmanager
def simulated() -> Iterator[Counter[tuple[str, str]]]:
    """Torch sees the device within; gives the count of what the host waits for."""
    waits.clear()
    products.clear()
    launches.clear()
    with pytest.MonkeyPatch.context() as patch, streams.simulated(patch):
        pinned.simulated(patch)
        for name in FACTORIES:
            patch.setattr(torch, name, _factory(name))
        patch.setattr(Tensor, "to", _to)
        patch.setattr(Tensor, "pin_memory", _pinned)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setattr(torch.cuda, "get_device_name", lambda _=None: "a simulated device")
        patch.setattr(torch.cuda, "memory_reserved", lambda _=None: 0)
        patch.setattr(torch.cuda, "memory_allocated", lambda _=None: 0)
        patch.setattr(torch.cuda, "mem_get_info", lambda _=None: (2**34, 2**34))
        with suppress(ImportError):
            from triton.runtime.interpreter import GridExecutor

            patch.setattr(GridExecutor, "__call__", _launched(GridExecutor.__call__))
        yield waits


def _held(argument):
    """A kernel's argument, with the numbers that a CPU holds."""
    return tree_map_only(OnDevice, lambda tensor: tensor.held, argument)


def _launched(call: Callable[..., None]) -> Callable[..., None]:
    def launched(kernel, *args, **options):
        launch(kernel.fn.__module__.rpartition(".")[2])
        tensors = [leaf for leaf in tree_leaves((args, options)) if isinstance(leaf, Tensor)]
        if any(not isinstance(tensor, OnDevice) for tensor in tensors):
            raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
        for tensor in tensors:
            streams.read(tensor.memory)
        call(kernel, *map(_held, args), **options)
        for tensor in tensors:
            streams.write(tensor.memory)

    return launched

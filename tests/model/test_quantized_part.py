"""A shard in few bits gathers and gives the rows that it was rounded to."""

from functools import partial

import pytest
import torch

from widenet.kernels import reference
from widenet.kernels.quantized import dequantized, quantized_to
from widenet.model.part import Part
from widenet.model.quantized_part import PackedPart, QuantizedPart, quantized_row_bytes
from widenet.sparse import SparseBatch


@pytest.fixture
def part():
    weight = torch.randn(300, 7, generator=torch.Generator().manual_seed(3))
    weight[5] = 0
    return Part(weight)


def test_rows_are_near_those_of_the_weight(part):
    made = QuantizedPart.of(part)
    rows, state = made.rows(10, 20)
    assert state == {}
    assert bool(((rows - part.weight[10:20]).abs() <= 0.501 * made.scale_R[10:20, None]).all())
    assert torch.equal(torch.cat([*made.blocks(64)]), made.rows(0, 300)[0])
    assert made.weight.stride(0) % 4 == 0


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_in_fewer_bits_rows_are_what_they_were_rounded_to(part, bits, monkeypatch):
    monkeypatch.setattr("widenet.model.quantized_part._BLOCK_NUMBERS", 64)
    made = PackedPart.rounded(part, bits)
    expected = dequantized(*quantized_to(part.weight, bits))
    assert torch.equal(made.rows(0, 300)[0], expected)
    assert torch.equal(torch.cat([*made.blocks(64)]), expected)
    assert (made.columns, made.bits, made.weight.shape) == (7, bits, (300, bits, 1))
    assert made.whole_numbers.stride(0) % 4 == 0


@pytest.mark.parametrize("columns", [7, 8, 33])
def test_bytes_of_rows_are_those_of_the_stored_tensors(columns):
    part = Part(torch.ones(10, columns))
    for made in (QuantizedPart.of(part), PackedPart.rounded(part, 2), PackedPart.rounded(part, 3)):
        stored = sum(tensor.nbytes for tensor in made.tensors().values())
        assert 10 * quantized_row_bytes(columns, made.bits) == stored


@pytest.mark.parametrize("make", [QuantizedPart.of, partial(PackedPart.rounded, bits=3)])
@pytest.mark.parametrize("values", [None, [0.5, -2.0, 3.0, 1.0]])
def test_sums_are_those_of_its_rows(part, values, make):
    made = make(part)
    batch = SparseBatch(torch.tensor([0, 3, 3, 4]), torch.tensor([7, 2, 7, 299], dtype=torch.int32))
    batch = batch if values is None else batch.with_values(torch.tensor(values))
    expected = reference.gather_sum(batch, made.rows(0, 300)[0])
    torch.testing.assert_close(made.gathered(batch), expected, rtol=0, atol=0)


@pytest.mark.parametrize("make", [QuantizedPart.of, partial(PackedPart.rounded, bits=3)])
def test_directions_have_length_one_or_none(part, make):
    made = make(part)
    lengths = (made.whole_numbers.float() * made.for_directions[:, None]).norm(dim=1)
    assert lengths[5] == 0
    torch.testing.assert_close(lengths[torch.arange(300) != 5], torch.ones(299))

"""Weights stored in bfloat16 and Adam's state in 8 bits, in plain torch: what rounding after each step costs.

bfloat16 has 8 significant bits, so that the nearest number to a weight after a small step is often the weight
before it. Two remedies keep such steps: rounding up or down by chance, with the probability that makes the
mean right, or Kahan's sum, which keeps what was lost in a second bfloat16.

8 bits are a sign, 4 bits of exponent and 3 of the mantissa, or 4 and 4 for squares, which are never negative.
Up to `BLOCK` numbers share the exponent that these 4 bits count from; it fits the largest of them.
"""

import torch
from torch import Tensor

from benchmarks.results import Table
from labs.classifier import NUM_WEIGHTS, SIZES, examples, first_weights

BLOCK = 256
EXAMPLES, TESTED, BATCH = 8_000, 10_000, 32
RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8


def by_chance(numbers: Tensor, generator: torch.Generator) -> Tensor:
    """Return float32 numbers rounded up or down to bfloat16; the mean is the number."""
    chance = torch.randint(0, 1 << 16, numbers.shape, generator=generator)
    bits = (numbers.view(torch.int32).long() & 0xFFFFFFFF) + chance
    return (bits >> 16).to(torch.int16).view(torch.bfloat16)


def in_8_bits(numbers: Tensor, are_squares: bool, generator: torch.Generator) -> Tensor:
    """Return a vector rounded by chance to what 8 bits and an exponent for each block hold, float32.

    A square that is not zero never becomes zero, since its root divides.
    """
    mantissa_bits = 3 + are_squares
    blocks = torch.nn.functional.pad(numbers, (0, -len(numbers) % BLOCK)).view(-1, BLOCK)
    largest = blocks.abs().amax(dim=1, keepdim=True)
    # 15 exponents have whole mantissas; below the first, numbers have the distance of its own.
    exponent = torch.frexp(blocks.abs()).exponent - 1
    first = (torch.frexp(largest).exponent - 15).clamp_min(-122)
    step = torch.exp2((torch.maximum(exponent, first) - mantissa_bits).float())
    chance = torch.rand(blocks.shape, generator=generator)
    rounded = torch.floor(blocks.abs() / step + chance) * step
    if are_squares:
        rounded = torch.where((rounded == 0) & (blocks > 0), step, rounded)
    return (rounded * blocks.sign()).view(-1)[: len(numbers)]


class Stored:
    """A vector of weights, as a form of storing keeps it between two steps."""

    def __init__(self, weights: Tensor, rounding: str) -> None:
        self.rounding, self.generator = rounding, torch.Generator().manual_seed(1)
        self.kept = weights.clone() if rounding == "none" else weights.bfloat16()
        self.lost = torch.zeros_like(self.kept)

    def read(self) -> Tensor:
        """Return a copy of the weights, float32."""
        return self.kept.to(torch.float32, copy=True)

    def step(self, change: Tensor) -> None:
        """Add a change and round."""
        weights = self.kept.float() + change
        if self.rounding == "Kahan":
            weights += self.lost.float()
        if self.rounding == "chance":
            self.kept = by_chance(weights, self.generator)
        elif self.rounding == "none":
            self.kept = weights
        else:
            self.kept = weights.bfloat16()
            self.lost = (weights - self.kept.float()).bfloat16()


FORMS: dict[str, tuple[str, bool, str]] = {
    "float32": ("none", False, "4 + 8"),
    "bfloat16, to the nearest": ("nearest", False, "2 + 8"),
    "bfloat16, by chance": ("chance", False, "2 + 8"),
    "bfloat16, Kahan's sum": ("Kahan", False, "4 + 8"),
    "bfloat16, by chance, state in 8 bits": ("chance", True, "2 + 2.01"),
}
"""Rounding of the weights, whether Adam's state has 8 bits, and the bytes of a weight and its state."""


def trained(rounding: str, has_small_state: bool, epochs: int, num_examples: int) -> Stored:
    """Train the labs' classifier by Adam; returns its weights."""
    data = examples(num_examples)
    inputs, labels = torch.from_numpy(data.inputs).float(), torch.from_numpy(data.labels)
    stored, order = Stored(torch.from_numpy(first_weights(0)).float(), rounding), torch.Generator()
    mean, square, number = torch.zeros(NUM_WEIGHTS), torch.zeros(NUM_WEIGHTS), 0
    for epoch in range(epochs):
        for batch in torch.split(torch.randperm(num_examples, generator=order.manual_seed(epoch)), BATCH):
            number += 1
            weights = stored.read().requires_grad_()
            loss = torch.nn.functional.cross_entropy(logits(weights, inputs[batch]), labels[batch])
            (gradient,) = torch.autograd.grad(loss, weights)
            mean = BETA1 * mean + (1 - BETA1) * gradient
            square = BETA2 * square + (1 - BETA2) * gradient.square()
            length = RATE / (1 - BETA1**number)
            stored.step(-length * mean / ((square / (1 - BETA2**number)).sqrt() + EPSILON))
            if has_small_state:
                mean = in_8_bits(mean, False, stored.generator)
                square = in_8_bits(square, True, stored.generator)
    return stored


def logits(weights: Tensor, inputs: Tensor) -> Tensor:
    """Return the logits of some inputs, float32 [E, 10]."""
    parts = torch.split(weights, [rows * columns for rows, columns in SIZES])
    first, first_bias, second, second_bias = (
        part.view(size) for part, size in zip(parts, SIZES, strict=True)
    )
    return torch.relu(inputs @ first + first_bias) @ second + second_bias


def compared(small: bool) -> Table:
    """Return the accuracy of the network in every form."""
    epochs, num_examples = (1, 2_000) if small else (5, EXAMPLES)
    torch.set_num_threads(1)
    table = Table(
        f"Weights in bfloat16: the labs' classifier, {num_examples:,} examples, {epochs} epochs, Adam {RATE}",
        ["weights", "bytes of a weight and its state", "loss", "accuracy"],
    )
    test = examples(TESTED, position=1)
    inputs, labels = torch.from_numpy(test.inputs).float(), torch.from_numpy(test.labels)
    for name, (rounding, has_small_state, bytes_of) in FORMS.items():
        scores = logits(trained(rounding, has_small_state, epochs, num_examples).read(), inputs)
        loss = float(torch.nn.functional.cross_entropy(scores, labels))
        accuracy = float((scores.argmax(dim=1) == labels).float().mean())
        table.rows.append([name, bytes_of, f"{loss:.4f}", f"{accuracy:.2%}"])
    return table

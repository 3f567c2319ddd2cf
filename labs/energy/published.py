"""Published energies of operations and of moving numbers.

Horowitz, "Computing's Energy Problem (and what we can do about it)", ISSCC 2014: a 45 nm process at 0.9 V.
"""

PICOJOULE = 1e-12

MULTIPLICATION = {"float32": 3.7 * PICOJOULE, "float16": 1.1 * PICOJOULE, "int8": 0.2 * PICOJOULE}
"""Of one multiplication, in joules."""

ADDITION = {"float32": 0.9 * PICOJOULE, "float16": 0.4 * PICOJOULE, "int8": 0.03 * PICOJOULE}
"""Of one addition, in joules."""

MEMORY = 1300 * PICOJOULE / 8
"""Of a byte from or to DRAM: the lower of 1.3 to 2.6 nJ for 64 bits."""

CACHE = 100 * PICOJOULE / 8
"""Of a byte from or to a cache of 1 MB: 100 pJ for 64 bits."""

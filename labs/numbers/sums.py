"""Sums of logarithmic numbers, term after term."""

import numpy as np

from labs.numbers.arithmetic import ZERO, Codes, LogNumbers

_ONE = np.int32(1)


class Sums:
    """The sums of one format."""

    def __init__(self, numbers: LogNumbers) -> None:
        self._table, self._limit = numbers.table(), np.int32(numbers.limit)

    def add(self, a: Codes, b: Codes) -> Codes:
        """Return the sums of two arrays' numbers."""
        log_a, log_b = a >> _ONE, b >> _ONE
        half = len(self._table) // 2
        larger = np.where(log_a >= log_b, a, b)
        place = np.minimum(np.abs(log_a - log_b), half - 1) + ((a ^ b) & _ONE) * half
        return self._coded((larger >> _ONE) + self._table[place], larger & _ONE)

    def add_product(self, out_EH: Codes, left_EI: Codes, right_IH: Codes) -> None:
        """Add a matrix product to `out_EH`. Zeros on the left are passed over."""
        for i in range(left_EI.shape[1]):
            rows = np.flatnonzero(left_EI[:, i] != ZERO)
            out_EH[rows] = self.add(out_EH[rows], self._product(left_EI[rows, i, None], right_IH[i]))

    def add_product_kahan(self, out_EH: Codes, carry_EH: Codes, left_EI: Codes, right_IH: Codes) -> None:
        """As `add_product`, by Kahan's sums: `carry_EH` is what the sums have gained too much so far.

        Kahan, "Further remarks on reducing truncation errors", CACM, 1965.
        """
        for i in range(left_EI.shape[1]):
            rows = np.flatnonzero(left_EI[:, i] != ZERO)
            total = out_EH[rows]
            term = self.add(self._product(left_EI[rows, i, None], right_IH[i]), carry_EH[rows] ^ _ONE)
            out_EH[rows] = self.add(total, term)
            carry_EH[rows] = self.add(self.add(out_EH[rows], total ^ _ONE), term ^ _ONE)

    def _product(self, a: Codes, b: Codes) -> Codes:
        return self._coded((a >> _ONE) + (b >> _ONE), (a ^ b) & _ONE)

    def _coded(self, log: Codes, sign: Codes) -> Codes:
        return np.where(log >= -self._limit, (np.minimum(log, self._limit) << _ONE) | sign, ZERO)

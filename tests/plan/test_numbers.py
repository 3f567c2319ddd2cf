"""Amounts: read and written as people do."""

import pytest

from widenet.plan.numbers import amount, bytes_of, duration


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (99_950, "100 kB"),
        (999_400, "999 kB"),
        (999_600, "1.00 MB"),
        (212e9, "212 GB"),
        (3.2e18, "3.20 EB"),
        (4e22, "40000 EB"),
    ],
)
def test_an_amount_has_three_digits_and_a_decimal_prefix(number, text):
    assert amount(number) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("141GB", 141 * 10**9),
        ("80 GiB", 80 * 2**30),
        ("1.5tb", 1_500_000_000_000),
        ("500B", 500),
        ("1000000", 1_000_000),
        (" 16 gib ", 16 * 2**30),
    ],
)
def test_amounts_are_read(text, number):
    assert bytes_of(text, "--memory") == number


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (7.11e-5, "0.0711 ms"),
        (0.0147, "14.7 ms"),
        (0.1234, "0.123 s"),
        (100, "2 min"),
        (5400, "90 min"),
        (6000, "1 h 40 min"),
        (360000, "100 h 0 min"),
    ],
)
def test_times_are_short(seconds, said):
    assert duration(seconds) == said

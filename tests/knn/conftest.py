"""What the tests of this room share: groups of processes."""

from tests.parallel.conftest import groups

__all__ = ["groups"]

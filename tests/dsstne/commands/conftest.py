"""The command line of tests/cli, for DSSTNE's commands."""

from tests.cli.conftest import widenet, world

__all__ = ["widenet", "world"]

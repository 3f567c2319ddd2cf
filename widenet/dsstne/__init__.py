"""Amazon DSSTNE: its documents, data, trained networks and commands."""

from widenet.extensions import Command

COMMAND = Command("DSSTNE's commands, with its flags and files", "widenet.dsstne.commands:app")
"""The commands of `widenet dsstne`."""

"""Amazon DSSTNE's commands with their own flags, and commands for its files."""

from widenet.extensions import Command

COMMAND = Command("DSSTNE's commands, with its flags and files", "widenet.dsstne.commands.app:app")

"""The entry of DSSTNE's commands in the list of commands."""

from widenet.extensions import Command

COMMAND = Command("DSSTNE's commands, with its flags and files", "widenet.dsstne.commands.app:app")

"""The command of this lab."""

from labs.command import start
from labs.large_batches.lab import run

start(run)

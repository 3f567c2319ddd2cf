"""The command of this lab."""

from labs.command import start
from labs.staleness.lab import run

start(run)

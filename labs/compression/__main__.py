"""The command of this lab."""

from labs.command import start
from labs.compression.lab import run

start(run)

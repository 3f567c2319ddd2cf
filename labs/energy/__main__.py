"""The command of this lab."""

from labs.command import start
from labs.energy.lab import run

start(run)

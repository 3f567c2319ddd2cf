"""The command of this lab."""

from labs.command import start
from labs.numbers.lab import run

start(run)

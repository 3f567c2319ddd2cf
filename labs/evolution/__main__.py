"""The command of this lab."""

from labs.command import start
from labs.evolution.lab import run

start(run)

"""The command of this lab."""

from labs.command import start
from labs.qsgd.lab import run

start(run)

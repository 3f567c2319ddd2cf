"""The command of this lab."""

from labs.command import start
from labs.communication.lab import run

start(run)

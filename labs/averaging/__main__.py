"""The command of this lab."""

from labs.averaging.lab import run
from labs.command import start

start(run)

"""`widenet` with a model that stops before every batch until it gets a line, and says so."""

import sys

from widenet.cli import main
from widenet.serve.engine import Engine

answers = Engine.answers


def stopped(self, asks):
    print("stopped", flush=True)
    sys.stdin.readline()
    return answers(self, asks)


Engine.answers = stopped
main(sys.argv[1:])

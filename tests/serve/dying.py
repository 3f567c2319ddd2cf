"""`widenet` with a model whose thread dies at once."""

import sys

from widenet.cli import main
from widenet.serve.batches import ModelThread


def broken(self):
    raise OverflowError(self)


ModelThread._take = broken
main(sys.argv[1:])

"""`widenet` with a model whose thread dies at once."""

from tests.serve.copied import run
from widenet.serve.batches import ModelThread


def broken(self):
    raise OverflowError(self)


ModelThread._take = broken
run()

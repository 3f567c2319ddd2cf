"""The process of a model that fails on every batch with the item "i7", and ends itself on "i13"."""

import os
import signal
import sys

from widenet.serve.engine import Engine
from widenet.serve.model_process import main

answers = Engine.answers


def failing(self, asks):
    if any(ask.items == ["i13"] for ask in asks):
        os.kill(os.getpid(), signal.SIGKILL)
    if any(ask.items == ["i7"] for ask in asks):
        raise OverflowError("secret".upper())
    return answers(self, asks)


Engine.answers = failing
main(sys.argv[1])

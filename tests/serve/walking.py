"""`widenet` whose services say how many objects the garbage collector would walk
through: each at its end, and the process of its model with every batch.
"""

import gc
import sys

from widenet.cli import main
from widenet.serve import model_process, remote
from widenet.serve.batches import ModelThread
from widenet.serve.engine import Engine


def before(owner, name):
    """Let a method say it first."""
    method = getattr(owner, name)

    def counted(*arguments):
        print("walks through", len(gc.get_objects()), file=sys.stderr)
        return method(*arguments)

    setattr(owner, name, counted)


if sys.argv[1] == "serve":
    remote.PROGRAM[:] = [__file__]
    before(ModelThread, "close")
    main(sys.argv[1:])
else:
    before(Engine, "answers")
    model_process.main(sys.argv[1])

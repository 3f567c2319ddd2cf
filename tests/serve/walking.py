"""`widenet` whose services say at their end how many objects the garbage collector would walk through."""

import gc
import sys

from widenet.cli import main
from widenet.serve.batches import ModelThread

close = ModelThread.close


def counted(self):
    print("walks through", len(gc.get_objects()), file=sys.stderr)
    close(self)


ModelThread.close = counted
main(sys.argv[1:])

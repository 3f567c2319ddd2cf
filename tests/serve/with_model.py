"""`widenet` with another program as the process of its model: the first word, a file of this folder."""

import sys
from pathlib import Path

from widenet.cli import main
from widenet.serve import remote

remote.PROGRAM[:] = [str(Path(__file__).with_name(sys.argv.pop(1)))]
main(sys.argv[1:])

"""One worker of a study as a process: `python -m widenet.tuning STUDY DATA TRIALS`."""

import sys

from widenet.tuning.worker import main

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

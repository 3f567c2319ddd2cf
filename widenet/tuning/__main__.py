"""One worker of a study as a process: `python -m widenet.tuning STUDY DATA TRIALS`."""

import sys
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.errors import WidenetError
from widenet.parallel.launch import end_with_launcher
from widenet.tuning.study import Study
from widenet.tuning.worker import work
from widenet.tuning.worker_processes import Telling


def main(study: str, data: str, num_trials: str) -> int:
    """Train trials until the study is over; gives the exit status."""
    end_with_launcher()
    report = Telling()
    try:
        work(Study.open(Path(study)), int(num_trials), Dataset.open(data), report)
    except WidenetError as error:
        report.error(error)
        return error.status
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

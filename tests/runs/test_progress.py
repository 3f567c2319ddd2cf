"""Progress on a terminal."""

import io

from widenet.runs.progress import TrainingReport
from widenet.training.state import LoopState

RECORD = {
    "epoch": 1,
    "loss": 2.5,
    "seconds": 3.14,
    "examples_per_second": 1234.5,
    "recall@20": 0.25,
    "ndcg@20": 0.5,
    "recall@5": 0.1,
}
LINE = "epoch 1/2  loss 2.5000  3.1 s  1,234 users/s  recall@20 0.2500  ndcg@20 0.5000"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar_and_the_same_lines(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    report = TrainingReport()
    report.start(LoopState(), 2, 10)
    report.advance(5, 3.0)
    report.advance(5, 2.0)
    report.epoch(RECORD)
    report.stop()
    assert LINE in terminal.getvalue()
    assert report.bar.tasks[report.task].fields["metric"] == "ndcg@20 0.5000"
    assert terminal.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K")

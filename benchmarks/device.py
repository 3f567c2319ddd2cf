"""Runs the tests or the measurements of a CUDA device one after another; `device.sh` prepares for it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from xml.etree import ElementTree

from benchmarks.results import machine

_TAIL = 2_000
"""Characters of the end of a step's output that the results keep."""


@dataclass(frozen=True)
class Step:
    """Some words after `python -m`, with {out} for the folder of results; those of pytest are counted.

    It may take some minutes.
    """

    name: str
    words: Sequence[str]
    minutes: float

    @property
    def is_test(self) -> bool:
        """Whether pytest runs it."""
        return self.words[0] == "pytest"


@dataclass
class Outcome:
    """What came of a step.

    Attributes:
        name: The step's name.
        status: "passed", "failed", "skipped" or "out of time".
        seconds: Its time.
        counts: Of tests: how many there are, and how many failed or were skipped.
        failed: Names of failed tests.
        output: The end of its output, unless it passed.
    """

    name: str
    status: str
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    output: str = ""


_PYTEST = ("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "--tb=short")
"""Without pytest-benchmark, which warns under pytest-xdist. The option is harmless where it is missing."""
_TESTS = (
    Step("kernels against their definitions", (*_PYTEST, "-n", "8", "tests/kernels/triton"), 1),
    Step("tests of the device", (*_PYTEST, "-n", "8", "tests/test_gpu.py", "-k", "not same_bits"), 2),
    Step(
        "the same bits twice, and of shards together",
        (*_PYTEST, "-n", "8", "tests/test_gpu.py", "-k", "same_bits"),
        1,
    ),
)
_TABLE = Step(
    "time and memory of steps", ("benchmarks.gpu", "--out", "{out}", "--parts", "d", "e", "a", "recommend"), 5
)
_PROFILE = Step("profile", ("benchmarks.gpu_profile", "{out}"), 2)
STEPS = {
    "test": (*_TESTS, Step("all kernels compile", (*_PYTEST, "tests/kernels/test_triton.py"), 5)),
    "bench": (Step("time and memory of steps", ("benchmarks.gpu", "--out", "{out}"), 9.5),),
    "all": (*_TESTS, _TABLE, _PROFILE),
    "try": (
        Step("a trial without a device", ("benchmarks.gpu", "--trial", "--out", "{out}"), 9.5),
        Step("profile", ("benchmarks.gpu_profile", "{out}", "--trial"), 2),
    ),
}
"""The steps of each work; "all" has what a device shows in eleven minutes, what says most first, and "try"
shows on any machine that the measurements run.
"""


def main() -> None:
    """Run `python -m benchmarks.device test|bench|all|try FOLDER [WORDS]`; status 1 unless all steps pass.

    Further words go to every step.
    """
    work, out = sys.argv[1], Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    for step in STEPS[work]:
        outcomes.append(_outcome(replace(step, words=[*step.words, *sys.argv[3:]]), out))
        _write(work, outcomes, out)
    print((out / f"device-{work}.md").read_text())
    sys.exit(any(outcome.status in ("failed", "out of time") for outcome in outcomes))


def _outcome(step: Step, out: Path) -> Outcome:
    """Run a step for at most its minutes."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [word.format(out=out) for word in step.words]
        if step.is_test:
            words += [f"--junitxml={report}"]
        started = monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-m", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=60 * step.minutes,
                check=False,
            )
            status, output = "failed" if done.returncode else "passed", done.stdout
        except subprocess.TimeoutExpired as late:
            status, output = "out of time", late.stdout or b""
        outcome = Outcome(step.name, status, round(monotonic() - started, 1))
        if status != "passed":
            outcome.output = output.decode(errors="replace")[-_TAIL:]
        if report.exists():
            _count(outcome, report)
        return outcome


def _count(outcome: Outcome, report: Path) -> None:
    """Add the tests of a JUnit report to an outcome."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    outcome.counts = {"tests": len(cases), "failed": len(bad), "skipped": skipped}
    outcome.failed = [f"{case.get('classname')}.{case.get('name')}" for case in bad]
    if outcome.status == "passed" and skipped == len(cases):
        outcome.status = "skipped"


def _write(work: str, outcomes: Sequence[Outcome], out: Path) -> None:
    """Write device-WORK.json and device-WORK.md, after every step, so that a killed run leaves them."""
    facts = {"machine": machine(), "device": _device(), "steps": [asdict(outcome) for outcome in outcomes]}
    (out / f"device-{work}.json").write_text(json.dumps(facts, indent=1) + "\n")
    lines = [
        f"{facts['device']}; {facts['machine']}",
        "",
        "| step | outcome | tests | failed | skipped | s |",
    ]
    lines.append("|---|---|---|---|---|---|")
    for outcome in outcomes:
        counts = [str(outcome.counts.get(name, "-")) for name in ("tests", "failed", "skipped")]
        lines.append(f"| {outcome.name} | {outcome.status} | {' | '.join(counts)} | {outcome.seconds} |")
    for outcome in outcomes:
        if outcome.output:
            lines += ["", f"{outcome.name}:", "", "```", outcome.output, "```"]
    (out / f"device-{work}.md").write_text("\n".join(lines) + "\n")


def _device() -> str:
    import torch

    if not torch.cuda.is_available():
        return f"no CUDA device, torch {torch.__version__}"
    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"


if __name__ == "__main__":
    main()

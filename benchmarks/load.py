"""Loads an HTTP service over loopback: wrk asks as fast as it is answered."""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """
local bodies = {}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
local next = 0
request = function()
  next = next %% #bodies + 1
  return wrk.format("POST", "/v1/recommend", {["Content-Type"] = "application/json"}, bodies[next])
end
done = function(summary, latency)
  io.write(string.format("found %%d %%d %%d %%f %%f\\n", summary.requests, summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


@dataclass
class Load:
    """What wrk measured.

    Attributes:
        answers: Number of answers.
        rate: Answers a second.
        refused: Answers other than 200.
        broken: Connections that failed or timed out.
        middle_ms: Median of the latencies of all answers.
        late_ms: Their 99th percentile.
    """

    answers: int
    rate: float
    refused: int
    broken: int
    middle_ms: float
    late_ms: float

    def cells(self) -> list[str]:
        """The cells of a row: rate, p50, p99, refused, broken."""
        return [
            f"{self.rate:,.0f}",
            f"{self.middle_ms:.1f}",
            f"{self.late_ms:.1f}",
            f"{self.refused:,}",
            f"{self.broken:,}",
        ]


def need_programs() -> None:
    """End with a sentence where a program is missing."""
    if shutil.which("wrk") is None:
        sys.exit("This measurement needs wrk: install it with `apt-get install wrk`.")


def write_requests(folder: Path, bodies: list[str]) -> None:
    """Write what the loads below ask, in turn."""
    (folder / "bodies").write_text("\n".join(bodies) + "\n", encoding="utf-8")
    (folder / "script.lua").write_text(_SCRIPT % (folder / "bodies"), encoding="utf-8")


def load(folder: Path, port: int, seconds: int, connections: int) -> Load:
    """Ask over some connections, each as soon as it has its answer, for some seconds."""
    return finished(started(folder, port, seconds, connections))


def started(folder: Path, port: int, seconds: int, connections: int) -> "subprocess.Popen[str]":
    """Begin such a load, for `finished`; SIGINT ends it earlier."""
    command = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{seconds}s", "--timeout", "10s"]
    command += ["-s", str(folder / "script.lua"), f"http://127.0.0.1:{port}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finished(wrk: "subprocess.Popen[str]") -> Load:
    """Wait for a load, and give what it measured."""
    said, _ = wrk.communicate()
    numbers = re.search(r"^found (\d+) (\d+) (\d+) (\S+) (\S+)$", said, re.MULTILINE)
    rate = re.search(r"^Requests/sec:\s*(\S+)$", said, re.MULTILINE)
    assert numbers is not None, said
    assert rate is not None, said
    return Load(
        int(numbers[1]),
        float(rate[1]),
        int(numbers[2]),
        int(numbers[3]),
        float(numbers[4]),
        float(numbers[5]),
    )

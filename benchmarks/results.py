"""Publishes results: tables on the terminal; tables, single turns and plots in a folder."""

import json
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.alternately import THREADS, Measured
from benchmarks.published import RESULTS, Rows, compared


@dataclass
class Table:
    """A table of text, and the facts behind it.

    bars: of each row with figures its name, its ratio in the middle, and its quartiles; for the plot.
    """

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    turns: dict[str, Any] = field(default_factory=dict)
    bars: list[tuple[str, float, float, float]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"### {self.title}",
            "",
            *(_line(row) for row in (self.columns, ["---"] * len(self.columns), *self.rows)),
        ]
        return "\n".join([*lines, "", *self.notes, f"Processor: {processor()}, {THREADS} threads.", ""])

    def add(self, measured: Measured, base: Measured, *cells: str) -> None:
        """Add a row: program, time over the base's, seconds, and further cells; or its problem."""
        name = measured.program.name
        self.turns[name] = {
            "versions": measured.versions,
            "seconds": measured.seconds,
            "steps": measured.steps,
            **measured.facts,
        }
        if measured.problem is not None or base.problem is not None:
            self.turns[name]["problem"] = measured.problem
            self.rows.append([name, measured.problem or "-", *["-"] * (len(self.columns) - 2)])
            return
        ratios = measured.ratios(base)
        self.bars.append((name, *quartiles(ratios)))
        self.rows.append(
            [
                name,
                spread(ratios, "{:.2f}"),
                spread([1000 * seconds for seconds in measured.seconds], "{:,.1f}"),
                *cells,
            ]
        )


def quartiles(numbers: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, and the first and third quartile."""
    if len(numbers) < 2:
        return numbers[0], numbers[0], numbers[0]
    low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return middle, low, high


def spread(numbers: Sequence[float], form: str) -> str:
    """Return the median and the quartiles, such as "2.10 (2.05 to 2.31)"."""
    middle, low, high = (form.format(number) for number in quartiles(numbers))
    return f"{middle} ({low} to {high})"


def publish(name: str, tables: Sequence[Table], out: Path) -> None:
    """Write NAME.json, NAME.md and, if it can plot bars, NAME.svg to a folder; compare with known tables."""
    out.mkdir(parents=True, exist_ok=True)
    facts = {"machine": machine(), "threads": THREADS, "tables": [vars(table) for table in tables]}
    (out / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
    (out / f"{name}.md").write_text("\n".join(str(table) for table in tables))
    if any(table.bars for table in tables) and find_spec("matplotlib"):  # where devices are it may be missing
        _plot([table for table in tables if table.bars], out / f"{name}.svg")
    rows = [
        Rows(table.title, list(table.columns), {name: cells for name, *cells in table.rows}, processor())
        for table in tables
    ]
    known = "\n".join(path.read_text("utf-8") for path in sorted(RESULTS.glob("*.md")))
    print("Compared with benchmarks/results:", *compared(rows, known), sep="\n  ")
    print(f"Written to {out}: {', '.join(path.name for path in sorted(out.glob(f'{name}.*')))}")


def processor() -> str:
    """Return the processor's name, its family and model, and the widest vectors that it has."""
    lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    facts = {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    flags = facts.get("flags", "").split()
    widest = next(
        (flag for flag in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if flag in flags), "no AVX2"
    )
    kind = f"family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}, {widest}"
    return f"{facts.get('model name', platform.machine())} ({kind})"


def machine() -> str:
    """Return the processor and the system."""
    return f"{processor()}, {platform.system()} {platform.release()}, Python {platform.python_version()}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plot(tables: Sequence[Table], path: Path) -> None:
    """Plot a panel for each table: a bar for each program, relative to the base, with quartiles."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = path.name
    from matplotlib import pyplot

    heights = [0.7 + 0.32 * len(table.bars) for table in tables]
    figure, axes = pyplot.subplots(
        len(tables), 1, figsize=(9, sum(heights)), height_ratios=heights, sharex=True, squeeze=False
    )
    for axis, table in zip(axes[:, 0], tables, strict=True):
        names, middles, lows, highs = zip(*reversed(table.bars), strict=True)
        errors = [
            [m - low for m, low in zip(middles, lows, strict=True)],
            [high - m for m, high in zip(middles, highs, strict=True)],
        ]
        colors = ["#c44e52" if name.startswith("widenet") else "#4c72b0" for name in names]
        bars = axis.barh(names, middles, xerr=errors, color=colors, height=0.7)
        axis.bar_label(bars, [f"{middle:.2f}" for middle in middles], padding=6, fontsize=8)
        axis.set_title(table.title, fontsize=9, loc="left")
        axis.axvline(1, color="black", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    axes[-1, 0].set_xlabel("time, as a multiple", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)

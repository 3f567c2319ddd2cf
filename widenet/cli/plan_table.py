"""A plan as text: tables, and a sentence that says whether the training fits."""

from collections.abc import Mapping, Sequence
from typing import Any

from widenet.cli.tables import aligned
from widenet.plan.layout import Job
from widenet.plan.memory import WORDS
from widenet.plan.numbers import amount, duration
from widenet.plan.streaming import NAMES
from widenet.spec.training import TrainingSpec


def plan_table(job: Job, report: Mapping[str, Any], assumed: bool) -> str:
    """Format a report of `widenet.plan.fit.report`.

    Args:
        job: The planned training.
        report: The report.
        assumed: Whether the number of entries per example is assumed, because there is no dataset.
    """
    held = " or ".join(
        str(number) for number in sorted({job.num_held(job.num_processes - 1), job.num_held(0)})
    )
    batch = (
        f"batch {job.num_examples:,}, {job.training.optimizer.kind}, {job.training.shards} shards, {held} per"
        " process"
    )
    parts = [
        (WORDS.get(name, name), amount(size))
        for name, size in report["memory_bytes"].items()
        if size or name not in ("snapshot", "window")
    ]
    work, wide = report["work"], [f"rows of {name}" for name in report["processes"][0]["rows"]]
    lines = [
        *_aligned(
            ("weight", "rows", "columns", "bytes", "held"),
            [_weight(name, row) for name, row in report["weights"].items()],
        ),
        "",
        *_aligned(("process", "shards", *wide, "memory"), [_process(row) for row in report["processes"]]),
        "",
        *_aligned(("each process", "bytes"), parts),
        "",
        (
            f"{batch}. A step, each process: {amount(work['operations'], 'FLOP')};"
            f" {amount(work['sent_bytes'])} sent, as much received."
        ),
        (
            f"A checkpoint: {amount(report['checkpoint_bytes'])} on disk; a run keeps"
            f" {job.training.checkpoints.keep_last}."
        ),
    ]
    if report["scratch_bytes"]:
        lines.append(_elsewhere(report))
    if assumed:
        lines.append(
            f"Assumed: {next(iter(job.entries.values())):g} stored entries per example and field. With --data"
            " widenet counts them."
        )
    if "measured" in report:
        lines += _measured(report["measured"], job.training)
    if "fits" in report:
        lines.append(_verdict(job, report))
    return "\n".join(lines)


def _measured(seconds: Mapping[str, Any], training: TrainingSpec) -> list[str]:
    """Sentences about how long a training and its recommendations take."""
    stops_early = training.evaluation is not None and training.evaluation.stop_after is not None
    beside = [
        f"{name} of {duration(taken)}"
        for name, taken in (
            ("evaluations", seconds["evaluation_seconds"]),
            ("checkpoints", seconds["checkpoint_seconds"]),
        )
        if taken is not None
    ]
    lines = [
        f"A step takes {duration(seconds['step_seconds'])} (measured: {seconds['source']}).",
        f"An epoch of {_count(seconds['steps_per_epoch'], 'step')}: {duration(seconds['epoch_seconds'])}."
        f" Training, {_count(training.epochs, 'epoch')}: {duration(seconds['training_seconds'])}"
        f"{', if it does not stop early' if stops_early else ''}"
        f"{', with ' + ' and '.join(beside) + ' each' if beside else ''}.",
    ]
    if seconds["recommendation_seconds"] is not None:
        lines.append(f"Recommendations for all: {duration(seconds['recommendation_seconds'])}.")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _elsewhere(report: Mapping[str, Any]) -> str:
    """Sentences about weights on a disk or in the host's memory."""
    work, window = report["work"], report["memory_bytes"]["window"]
    read, written = amount(work["read_bytes"]), amount(work["written_bytes"])
    held = f"{amount(report['scratch_bytes'])} of weights and optimizer state"
    if report["weights_in"] == "host":
        return (
            f"In the host's memory, each process: {held}, of which the device holds {amount(window)}. A step"
            f" copies {read} to the device and {written} back."
        )
    seconds = report.get("disk_seconds")
    return (
        f"On disk, each process: {held}, of which memory holds {amount(window)}. A step reads {read} and"
        f" writes {written}" + ("." if seconds is None else f", at least {seconds:.3g} s.")
    )


def _verdict(job: Job, report: Mapping[str, Any]) -> str:
    """Return sentences on whether the training fits, and on how many devices it would."""
    memory_each = amount(report["device_memory_bytes"])
    verdict = "Fits" if report["fits"] else "Does not fit"
    if report["weights_in"] != "device":
        verdict += f" with {NAMES[report['weights_in']].lower()}"
    sizes = {WORDS.get(name, name): size for name, size in report["memory_bytes"].items()}
    total = sizes.pop("total")
    mostly = ", ".join(
        f"{name} {amount(sizes[name])}" for name in sorted(sizes, key=lambda name: -sizes[name])[:2]
    )
    need = f"{verdict}: a process needs {amount(total)} ({mostly}) of {memory_each}."
    if "fewest" not in report:
        shared = " That is this machine's, shared by its processes." if job.num_processes > 1 else ""
        return f"{need}{shared}"
    fewest = report["fewest"]
    held = "it" if job.weights_in == "device" else "the weights themselves"
    if fewest is None:
        return f"{need} No number of devices of that size holds {held}."
    each = f"{amount(fewest['memory_bytes'])} each"
    if job.weights_in != "device":
        return f"{need} The fewest devices that hold {held}: {fewest['processes']}, {each}."
    if fewest["processes"] == job.num_processes and fewest["shards"] == job.training.shards:
        return f"{need} No fewer would do." if job.num_processes > 1 else need
    more = "" if fewest["shards"] == job.training.shards else f' with "shards": {fewest["shards"]}'
    return f"{need} The fewest that hold it: {fewest['processes']}{more}, {each}."


def _weight(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    columns = "" if row["columns"] is None else f"{row['columns']:,}"
    return (
        name,
        f"{row['rows']:,}",
        columns,
        amount(row["bytes"]),
        "in shards of rows" if row["wide"] else "whole by every process",
    )


def _process(row: Mapping[str, Any]) -> tuple[str, ...]:
    first, stop = row["shards"]
    shards = f"{first}" if stop == first + 1 else f"{first}-{stop - 1}"
    rows = [f"{number:,}" for number in row["rows"].values()]
    return f"{row['process']}", shards, *rows, amount(row["memory_bytes"])


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns of text: the first column and words to the left, numbers to the right."""
    right = [
        column
        for column in range(1, len(header))
        if all(row[column][:1].isdigit() or not row[column] for row in rows)
    ]
    return aligned([header, *rows], right)

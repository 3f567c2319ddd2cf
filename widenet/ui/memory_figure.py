"""The memory that a plan counts for each process, as bars and as a table."""

from widenet.pictures.html import Html, joined, table, tag
from widenet.pictures.stacks import stacks
from widenet.plan.job import Job
from widenet.plan.memory import WORDS, memory
from widenet.plan.numbers import amount
from widenet.report.sections import note
from widenet.ui.pages import strict

_MOST_DRAWN = 16


def memory_figure(job: Job) -> Html:
    """Return a bar for each of the first processes, and their numbers in a table that one can open."""
    needed = {
        f"process {process}": vars(memory(job, process % job.num_processes))
        for process in range(min(job.num_processes, _MOST_DRAWN))
    }
    rows = {
        process: {WORDS.get(name, name): float(size) for name, size in sizes.items()}
        for process, sizes in needed.items()
    }
    parts = dict.fromkeys(name for sizes in rows.values() for name, size in sizes.items() if size > 0)
    listed = [[name, *(amount(sizes[name]) for sizes in rows.values())] for name in parts]
    listed.append(["in all", *(amount(sum(sizes.values())) for sizes in rows.values())])
    drawn = stacks("memory of each process", rows, amount)
    numbers = tag("details", tag("summary", "Numbers"), table(["", *rows], listed, numbers=True))
    rest = job.num_processes - len(rows)
    more = note(f"The first {len(rows)} of {job.num_processes:,} processes.") if rest else ""
    return strict(joined([drawn, numbers, more]))

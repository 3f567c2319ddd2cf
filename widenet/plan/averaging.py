"""What averaging the replicas of a training takes: memory, and bytes sent."""

from widenet.plan.job import Job

AVERAGED_NUMBERS = 2**20
"""Numbers of a replica that are averaged together."""


def averaging_memory(job: Job) -> int:
    """Return the bytes of numbers that are averaged together: of each replica, and sums in 64 bits."""
    return 0 if job.replicas == 1 else AVERAGED_NUMBERS * (8 * job.held_replicas + 24)


def average_bytes(job: Job) -> float:
    """Return the bytes that a process sends to average all replicas once: float32 weights and state.

    Each other process gets an equal part of every replica, then the means of the part that is added here.
    """
    numbers = sum(weight.numbers for weight in job.layout.weights.values() if weight.trained)
    others = (job.num_groups - 1) / job.num_groups
    return 4 * numbers * (1 + len(job.training.optimizer.state)) * (job.held_replicas + 1) * others


def averaged_bytes(job: Job) -> float:
    """Return the part of an average that falls to a step, in bytes sent."""
    averaging = job.training.averaging
    return 0 if averaging is None else average_bytes(job) / averaging.every

"""Checks whether the steps of a training can be recorded as a CUDA graph."""

from collections.abc import Iterator

from widenet.errors import OptionError
from widenet.plan.job import Job
from widenet.plan.layers import plan_of
from widenet.spec.activations import ROW_WISE
from widenet.spec.layers import OutputLayer
from widenet.spec.losses import CROSS_ENTROPIES


def check_recordable(job: Job) -> None:
    """Raise OptionError if the steps of a training cannot be recorded on any machine."""
    if job.device != "cuda":
        raise not_recorded("it does not run on a CUDA device")
    if job.num_processes > 1:
        raise not_recorded("it runs in several processes", "Train without it, or with `processes=1`.")
    obstacle = next(_obstacles(job), None)
    if obstacle is not None:
        raise not_recorded(obstacle)


def not_recorded(obstacle: str, remedy: str = "Train without it.") -> OptionError:
    """Return the error for a training whose steps cannot be recorded."""
    return OptionError(f"A CUDA graph of a training's steps is asked for, but {obstacle}. {remedy}")


def _obstacles(job: Job) -> Iterator[str]:
    """Yield the parts of a training that a graph cannot record.

    Within a step, the host must not read numbers from the device, and it draws the random numbers.
    """
    training, kind = job.training, job.training.optimizer.kind
    penalty = " with l2" if kind == "sgd" else ""
    obstacles = {
        '"gradient_norm_limit" asks for the length of each gradient': (
            training.gradient_norm_limit is not None
        ),
        '"brake" asks for the loss before each step': training.brake,
        f'under "{kind}"{penalty} weights move that a batch does not touch': training.idle_weights_move,
        "it reads a sequence": bool(job.layout.along),
    }
    yield from (obstacle for obstacle, is_there in obstacles.items() if is_there)
    yield from (
        f'layer "{layer.name}" {obstacle}'
        for layer in job.network.hidden
        for obstacle in plan_of(layer).obstacles(job, layer)
    )
    yield from (
        f'output "{output.name}" {obstacle}'
        for output in job.network.outputs
        for obstacle in _obstacles_of(job, output)
    )


def _obstacles_of(job: Job, output: OutputLayer) -> Iterator[str]:
    kind = output.activation.kind
    closed = kind == "softmax" and output.loss.kind in CROSS_ENTROPIES
    obstacles = {
        "is trained on a sample": output.sample is not None,
        "is trained without its logits": job.defers_rows(output),
        "shares its weights": job.layout.is_shared(output.name),
        "stands on a sparse input": job.is_over_sparse(output),
        f'has the activation "{kind}" under "{output.loss.kind}"': kind in ROW_WISE and not closed,
        "has dense targets": output.field not in job.entries and not closed,
        'has "others": "ignore"': output.others == "ignore",
        "has a delta_boost": output.delta_boost is not None,
        "has a delta_norm": output.delta_norm is not None,
    }
    yield from (obstacle for obstacle, is_there in obstacles.items() if is_there)

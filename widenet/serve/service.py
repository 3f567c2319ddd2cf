"""Starts a service: refuse what is wrong, bind the port, load the model, answer until SIGTERM."""

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.parallel.exchange import fixed_arithmetic
from widenet.serve.app import Service
from widenet.serve.batches import Follower, Measurements, ModelThread, state_of
from widenet.serve.engine import Engine
from widenet.serve.requests import guard_of
from widenet.serve.serve_arguments import ServeArguments
from widenet.serve.server import answer, bound
from widenet.training.run_path import check_run

_BYTES, _BYTES_A_NUMBER = 2**20, 24
"""Largest body, unless dense fields need more: a number of JSON with a comma has at most so many bytes."""
_SECONDS_IN_TURN = 0.0002
"""How long a thread runs Python while another waits to, such as the model's after each compiled call."""
_SECONDS_TO_ANSWER = 10
"""Seconds that a request may still take after its deadline, once the service ends."""


def serve(arguments: ServeArguments, url: Callable[[str], None]) -> None:
    """Answer requests until SIGTERM or Ctrl-C; what was accepted before is answered.

    Args:
        arguments: What to serve, where, and within which bounds.
        url: Called with the address when the service is ready.

    Raises:
        WidenetError: The run, the dataset, the token or the port cannot be used.
    """
    run = Path(arguments.run)
    guard = guard_of(
        arguments.host, arguments.token_file, arguments.allow_host, arguments.max_bytes or _BYTES
    )
    check_run(run)
    with bound(arguments.host, arguments.port) as listening, fixed_arithmetic():
        dataset = None if arguments.data is None else Dataset.open(arguments.data)
        state = state_of(run)  # before the load, so that no model that is published meanwhile is missed
        engine = Engine.load(run, dataset, arguments.device, arguments.output)
        if arguments.max_bytes is None:
            widest = max((field.width for field in engine.about.fields if field.kind == "dense"), default=0)
            guard = replace(guard, max_bytes=_BYTES + widest * _BYTES_A_NUMBER)
        model = ModelThread(engine, arguments, Measurements())

        def load(another: Path) -> Engine:
            return Engine.load(another, dataset, arguments.device, arguments.output, model.engine)

        follower = Follower(run, state, model, load)
        # Walking through all that was imported and loaded would hold up all requests.
        gc.collect()
        gc.freeze()
        sys.setswitchinterval(_SECONDS_IN_TURN)
        seconds_to_end = int(model.deadline_seconds) + _SECONDS_TO_ANSWER
        answer(Service(model, follower, guard).app(), listening, seconds_to_end, url)
        if follower.is_alive() or model.is_alive():  # native code must not meet the end of the interpreter
            sys.stderr.flush()
            os._exit(0)

"""Changed bytes: what becomes of reading them, tried in a process of its own, so that a signal is seen."""

import os
import pickle
import random
import signal
from contextlib import suppress

from widenet.errors import WidenetError


def flips(path, seed, number, read, within=None):
    """What `read` ends with after each of some changed bits of a file, as pairs of the place and the outcome;
    see `outcome`.

    One forked process tries them all, one after the other; the file is then as it was. within: the bytes to
    change, [start, stop).
    """
    whole = path.read_bytes()
    draw = random.Random(f"{seed} {path.name}")
    bits = [(draw.randrange(*(within or (0, len(whole)))), draw.randrange(8)) for _ in range(number)]

    def tried(say):
        for place, bit in bits:
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            say(f"{path.name}: bit {bit} of byte {place}")
            say(_ending(read))

    try:
        said, died = _forked(tried)
    finally:
        path.write_bytes(whole)
    return list(zip(said[::2], [*said[1::2], died], strict=False))


def outcome(read):
    """What `read` ends with in a forked process: its value, an error of ours, the text of another one, or
    the signal that ended it.
    """
    said, died = _forked(lambda say: say(_ending(read)))
    return said[0] if said else died


def _ending(read):
    try:
        return read()
    except WidenetError as error:
        return error
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def _forked(work):
    """What some work says in a forked process, and the signal that ended it, if one did."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            work(lambda value: pipe.write(pickle.dumps(value)))
        os._exit(0)
    os.close(writer)
    said = []
    with os.fdopen(reader, "rb") as pipe, suppress(EOFError):
        while True:
            said.append(pickle.load(pipe))
    _, status = os.waitpid(child, 0)
    return said, signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else None

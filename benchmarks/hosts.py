"""Two hosts, played by network namespaces with a cable between them. Needs root, `ip` and `tc`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ADDRESSES, PORT = ("10.231.9.1", "10.231.9.2"), "29541"


@contextmanager
def hosts(rate: str | None) -> Iterator[list[str]]:
    """Make two network namespaces with a cable between them, of a limited rate, such as "1gbit".

    Raises:
        OSError: `ip` or `tc` is missing.
        subprocess.CalledProcessError: They may not do this here.
    """
    names = [f"widenet-{os.getpid()}-{host}" for host in (0, 1)]
    try:
        for name in names:
            _do("ip", "netns", "add", name)
        # Both ends are made where they belong, so that no name can be taken on the machine itself.
        first, second = (("cable0", "netns", names[0]), ("cable1", "netns", names[1]))
        _do("ip", "link", "add", *first, "type", "veth", "peer", "name", *second)
        for host, name in enumerate(names):
            _do("ip", "-n", name, "address", "add", f"{ADDRESSES[host]}/24", "dev", f"cable{host}")
            for link in ("lo", f"cable{host}"):
                _do("ip", "-n", name, "link", "set", link, "up")
            if rate is not None:
                limit = ["root", "tbf", "rate", rate, "burst", "1mb", "latency", "50ms"]
                _do("tc", "-n", name, "qdisc", "add", "dev", f"cable{host}", *limit)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def train_on_hosts(words: Sequence[str], folder: Path, rate: str | None) -> int:
    """Run `widenet train` as two processes with one thread each, one on each host.

    Args:
        words: Arguments of the command.
        folder: Folder in which it runs.
        rate: Rate of the cable; None: no limit.

    Returns:
        The bytes that the first host sent over the cable.

    Raises:
        RuntimeError: The training failed.
    """
    with hosts(rate) as names:
        running = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, "-m", "widenet", "train", *words],
                cwd=folder,
                env=os.environ | _environment(host),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for host, name in enumerate(names)
        ]
        said = [process.communicate()[1].decode() for process in running]
        if any(process.returncode for process in running):
            raise RuntimeError("\n".join(said))
        shown = subprocess.run(
            ["ip", "-n", names[0], "-s", "-j", "link", "show", "cable0"], check=True, capture_output=True
        )
        return int(json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"])


def _environment(host: int) -> dict[str, str]:
    return {
        "RANK": str(host),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": ADDRESSES[0],
        "MASTER_PORT": PORT,
        "GLOO_SOCKET_IFNAME": f"cable{host}",
        "WIDENET_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }

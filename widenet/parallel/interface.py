"""The network interface by which a process reaches the others of its group."""

import fcntl
import os
import socket
import struct

_SIOCGIFADDR = 0x8915
"""Asks Linux for an interface's IPv4 address; see netdevice(7)."""
_NAME_BYTES, _ADDRESS = 256, slice(20, 24)


def choose_interface(local_address: str) -> None:
    """Have gloo use the interface with the address from which this process reached its group's store.

    By itself gloo takes the address of the machine's name, which on many systems is 127.0.1.1 and reaches no
    other machine. Changes nothing if GLOO_SOCKET_IFNAME is set, or if the store is on this machine.
    """
    name = None if local_address.startswith("127.") else interface_of(local_address)
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def interface_of(address: str) -> str | None:
    """The name of the interface that has an IPv4 address; None if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack(f"{_NAME_BYTES}s", name.encode()))
            except OSError:  # an interface without an IPv4 address
                continue
            if socket.inet_ntoa(reply[_ADDRESS]) == address:
                return name
    return None

"""The interface by which gloo is told to reach other machines."""

import os
import socket

import pytest

from widenet.parallel.interface import choose_interface, interface_of


def own_address():
    """The address from which this machine reaches others; connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no route to other machines")
        return asking.getsockname()[0]


def test_an_address_is_that_of_one_interface():
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.77") is None


def test_gloo_is_told_the_interface_of_the_address(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    address = own_address()
    choose_interface(address)
    assert os.environ["GLOO_SOCKET_IFNAME"] == interface_of(address)


@pytest.mark.parametrize(
    ("address", "before"), [("127.0.0.1", None), ("192.0.2.77", None), (None, "chosen")], ids=str
)
def test_gloo_is_told_nothing_where_the_user_or_the_machine_decides(address, before, monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    if before is not None:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", before)
    choose_interface(address or own_address())
    assert os.environ.get("GLOO_SOCKET_IFNAME") == before
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)

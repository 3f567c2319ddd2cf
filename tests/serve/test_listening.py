"""The port of a service belongs to it from the start, before it accepts connections."""

import socket

import pytest

from widenet.errors import OptionError
from widenet.serve.listening import bound, listen


def test_a_port_that_another_service_will_listen_at_is_in_use():
    with bound("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        for _ in range(2):  # while it loads, and afterwards
            with pytest.raises(OptionError, match=f"^port {port} of 127.0.0.1 is in use"):
                bound("127.0.0.1", port)
            listen(first)
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = first.accept()
            accepted.close()  # the service's end waits out the connection
            assert client.recv(1) == b""
    with bound("127.0.0.1", port) as again:
        listen(again)


def test_a_port_that_another_program_took_meanwhile_is_told():
    with bound("127.0.0.1", 0) as first:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with socket.create_server(first.getsockname()[:2]), pytest.raises(OptionError, match="is in use"):
            listen(first)

"""Free loopback ports that stay ours until their server binds them."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


class Reservation:
    """A loopback port nobody else is given while we hold it.

    The socket is bound but does not listen: a server that sets SO_REUSEADDR (all of ours do)
    may bind beside it, while the kernel gives the number to nobody else.
    """

    def __init__(self, preferred: int | None = None) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if preferred is None or in_use(preferred):
                raise OSError
            self._socket.bind((LOOPBACK, preferred))
        except OSError:
            self._socket.bind((LOOPBACK, 0))
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port back."""
        self._socket.close()


def in_use(port: int) -> bool:
    """Whether a server answers on this loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0

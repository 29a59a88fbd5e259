"""Free loopback ports that stay ours until their server binds them."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


class Reservation:
    """A loopback port nobody else is given while we hold it.

    The socket is bound but does not listen. It is bound alone (so a number another holder has
    is never taken), and only then shared: a server that sets SO_REUSEADDR, as all of ours do,
    may bind beside it, while the kernel still gives the number to nobody who asks for a free one.
    """

    def __init__(self, preferred: int | None = None) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if preferred is None or in_use(preferred) or not self._bind_again(preferred):
            self._socket.bind((LOOPBACK, 0))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port: int = self._socket.getsockname()[1]

    def _bind_again(self, preferred: int) -> bool:
        # A number we had before may still have closing connections, which only a sharing
        # socket is allowed to ignore.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((LOOPBACK, preferred))
        except OSError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            return False
        return True

    def release(self) -> None:
        """Give the port back."""
        self._socket.close()


def in_use(port: int) -> bool:
    """Whether a server answers on this loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0

"""The broker's transport: messages are hints, and a lost connection must not end a worker.

On a connection that broke, kombu acknowledges and puts back what was in a worker's hands
through channels that are already torn down; the error ends the worker's process or leaves it
deaf. Neither is needed here: a lost hint costs seconds, until beat looks at the rows again.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import redis


class HintChannel(redis.Channel):  # type: ignore[misc]
    """Forgets what was in a worker's hands when the connection ended."""

    do_restore = False

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> Any:
        return None if self.closed else super().basic_ack(delivery_tag, multiple)


class Transport(redis.Transport):  # type: ignore[misc]
    """`broker_transport` of our Celery application."""

    Channel = HintChannel

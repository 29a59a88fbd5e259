"""The broker's transport: messages are hints, and a lost connection must not end a worker.

kombu puts unacknowledged messages back when a connection closes. On a connection that broke it
does so with what is already torn down, and the error ends the worker's process. Nothing needs
putting back here: beat looks at the rows again.
"""

from kombu.transport import redis


class HintChannel(redis.Channel):  # type: ignore[misc]
    """Forgets what was not acknowledged."""

    do_restore = False


class Transport(redis.Transport):  # type: ignore[misc]
    """`broker_transport` of our Celery application."""

    Channel = HintChannel

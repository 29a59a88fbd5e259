"""Structured logs: one JSON object a line on standard output.

Bind `tenant`, `job`, `run`, `epoch` and `trace` where they are known. Nothing is logged per run
on the hot path; metrics count, the store records.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec
import structlog

_encoder = msgspec.json.Encoder(enc_hook=str)


def _dumps(event: Any, **_: Any) -> str:
    return _encoder.encode(event).decode()


def configure(level: str, **bound: str) -> None:
    """Send all logs, the standard library's included, to standard output as JSON. `bound` (cell,
    host, ...) is put on every line."""

    def add_bound(_: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        for name, value in bound.items():
            event.setdefault(name, value)
        return event

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        add_bound,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # Without local variables: they hold payloads and keys.
                structlog.processors.ExceptionRenderer(
                    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
                ),
                structlog.processors.EventRenamer("message"),
                structlog.processors.JSONRenderer(serializer=_dumps),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # These say at INFO what our own metrics say better.
    for noisy in ("aiohttp.access", "uvicorn.access", "psycopg.pool"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module."""
    return structlog.stdlib.get_logger(name)

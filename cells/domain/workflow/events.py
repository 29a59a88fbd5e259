"""Histories: what can be recorded of an execution."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

#: Events of one history; at 80 % people are warned.
EVENT_LIMIT = 10_000
#: Bytes of one history's data.
BYTE_LIMIT = 10 * 1024 * 1024
#: From here on nothing new begins: the rest is kept free for ending in order.
FULL_BYTES = BYTE_LIMIT * 9 // 10
WARNING_SHARE = 0.8
#: How many events are kept free for ending an execution that reached its limit in order.
RESERVE = 1_000


class EventType(enum.StrEnum):
    """What can be recorded."""

    STARTED = "STARTED"  # the first event: definition, version, input, whose child
    STEP_SKIPPED = "STEP_SKIPPED"  # its `when` was false
    STEP_FAILED = "STEP_FAILED"  # it could not begin: an expression came to nothing
    ACTIVITY_SCHEDULED = "ACTIVITY_SCHEDULED"  # a run was made, in the same transaction
    ACTIVITY_COMPLETED = "ACTIVITY_COMPLETED"
    ACTIVITY_FAILED = "ACTIVITY_FAILED"  # `known`: false where it may have happened all the same
    CANCEL_SENT = "CANCEL_SENT"  # to an activity or a child that is under way
    WAIT_STARTED = "WAIT_STARTED"  # for a signal, with or without a timer
    TIMER_STARTED = "TIMER_STARTED"
    TIMER_FIRED = "TIMER_FIRED"
    SIGNAL_RECEIVED = "SIGNAL_RECEIVED"
    PARALLEL_STARTED = "PARALLEL_STARTED"
    MAP_STARTED = "MAP_STARTED"  # with its list
    CHILD_STARTED = "CHILD_STARTED"
    CHILD_COMPLETED = "CHILD_COMPLETED"
    CHILD_FAILED = "CHILD_FAILED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"  # by somebody, or by the parent
    COMPENSATION_STARTED = "COMPENSATION_STARTED"
    COMPENSATION_STUCK = "COMPENSATION_STUCK"
    COMPENSATION_RESOLVED = "COMPENSATION_RESOLVED"  # by somebody: retry, or close with a note
    MIGRATED = "MIGRATED"  # goes on under another version
    RESET = "RESET"  # this history began as a copy of another one's beginning
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    COMPENSATED = "COMPENSATED"
    CANCELLED = "CANCELLED"
    TERMINATED = "TERMINATED"
    CONTINUED_AS_NEW = "CONTINUED_AS_NEW"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded fact. `at` is epoch milliseconds; `size` the bytes of its data as stored."""

    seq: int
    type: str
    at: int
    data: dict[str, Any] = {}
    size: int = 0

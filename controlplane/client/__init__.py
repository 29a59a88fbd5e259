"""Clockhouse from Python: a client, a worker, and what targets need. Imports nothing of the server.

Users import it as `clockhouse` (package/clockhouse):

from clockhouse import Clockhouse, HttpTarget, NewJob, Schedule
"""

from controlplane.client.aio import AsyncClockhouse
from controlplane.client.errors import (
    ApiError,
    BadRequest,
    ClockhouseError,
    ConfigurationError,
    Conflict,
    EpochSuperseded,
    Fault,
    Forbidden,
    Invalid,
    NondeterministicChange,
    NotFound,
    PayloadTooLarge,
    PreconditionFailed,
    QuotaExceeded,
    RunUnderWay,
    ServerError,
    StrictAllowanceExceeded,
    TimedOut,
    TransportError,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
    WorkflowIdInUse,
)
from controlplane.client.retrying import NEVER, Retries
from controlplane.client.specs import (
    Callback,
    Dst,
    HttpTarget,
    NewJob,
    Retry,
    Schedule,
    TaskQueueTarget,
    WorkflowTarget,
)
from controlplane.client.sync import Clockhouse
from controlplane.client.verification import Delivery, Ledger, NotVerified, Verdict, verify
from controlplane.client.worker import Failed, Task, Worker

__all__ = [
    "NEVER", "ApiError", "AsyncClockhouse", "BadRequest", "Callback", "Clockhouse", "ClockhouseError",
    "ConfigurationError", "Conflict", "Delivery", "Dst", "EpochSuperseded", "Failed", "Fault",
    "Forbidden", "HttpTarget", "Invalid", "Ledger", "NewJob", "NondeterministicChange", "NotFound",
    "NotVerified", "PayloadTooLarge", "PreconditionFailed", "QuotaExceeded", "Retries", "Retry",
    "RunUnderWay", "Schedule", "ServerError", "StrictAllowanceExceeded", "Task", "TaskQueueTarget",
    "TimedOut", "TransportError", "Unauthenticated", "Unavailable", "UnexpectedAnswer", "Verdict",
    "Worker", "WorkflowIdInUse", "WorkflowTarget", "verify",
]  # fmt: skip

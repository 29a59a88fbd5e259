"""What the other parts of Clockhouse may know about a cell.

Header names, the signature that the router, the console and the control plane put on
what they send to a cell (and a cell on the meters it ships back), scopes, error codes
and the meter record. Pure: no I/O, no clock; the time is passed in.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import hmac
from collections.abc import Iterable, Mapping

import msgspec

# --- headers -----------------------------------------------------------------------------
TENANT_HEADER = "X-Clockhouse-Tenant"
ACTOR_HEADER = "X-Clockhouse-Actor"
SCOPES_HEADER = "X-Clockhouse-Scopes"
EPOCH_HEADER = "X-Clockhouse-Epoch"
BODY_HASH_HEADER = "X-Clockhouse-Content-SHA256"
SIGNATURE_HEADER = "X-Clockhouse-Signature"
#: On a 421: this address is of a region that does not own the cell now; another address of the cell may.
STANDBY_HEADER = "X-Clockhouse-Standby"

#: Headers of the calls a cell makes to targets.
IDEMPOTENCY_KEY_HEADER = "Idempotency-Key"
FENCING_TOKEN_HEADER = "X-Fencing-Token"  # noqa: S105 - a name, no secret
#: Of a compensation: the idempotency key of what it undoes, so that a late call of that can be refused.
COMPENSATES_HEADER = "X-Compensates"
#: Tells the attempt of a call (1, 2, ...). Not part of the signed content.
ATTEMPT_HEADER = "X-Clockhouse-Attempt"

#: A signature is accepted this long before and after its time (milliseconds).
SIGNATURE_TOLERANCE_MS = 60_000
#: Stands for the body's hash where a body is streamed through unread.
UNSIGNED_BODY = "-"
#: Epochs of runs start at `ownership_epoch * EPOCH_STRIDE`; a double holds them exactly.
EPOCH_STRIDE = 1 << 20
#: The number of fixed logical shards of a cell.
SHARDS = 256


class Scope(enum.StrEnum):
    """What a key, a member or an internal caller may do."""

    JOBS_READ = "jobs:read"  # read jobs, runs, dead letters, targets
    JOBS_WRITE = "jobs:write"  # create, edit, cancel, pause, resume jobs; register targets
    JOBS_TRIGGER = "jobs:trigger"  # start a run by hand
    WORKERS = "workers"  # poll, heartbeat, complete
    WORKFLOWS_READ = "workflows:read"  # read workflows and definitions
    WORKFLOWS_WRITE = "workflows:write"  # start, signal, cancel workflows
    TARGETS_APPROVE = "targets:approve"  # approve targets, rotate their secrets
    PAYLOADS_READ = "payloads:read"  # see payloads and response bodies
    USAGE_READ = "usage:read"  # usage and cost
    ADMIN = "admin"  # everything inside one tenant
    OPERATOR = "operator"  # everything, for every tenant; tenantless keys only
    INTERNAL = "internal"  # the control plane speaking to a cell, or a cell to it


#: The scopes that `admin` stands for (all that concern one tenant).
TENANT_SCOPES: frozenset[Scope] = frozenset(Scope) - {Scope.OPERATOR, Scope.INTERNAL}


def allows(held: Iterable[str], needed: Scope) -> bool:
    """Whether the held scopes contain the needed one (`operator` ⊃ `admin` ⊃ tenant scopes)."""
    have = set(held)
    if needed in have:
        return True
    if Scope.OPERATOR in have:
        return needed is not Scope.INTERNAL
    return Scope.ADMIN in have and needed in TENANT_SCOPES


class Metric(enum.StrEnum):
    """What is metered. Quantities are integers."""

    JOB_RUNS = "job_runs"  # terminal transitions of job runs
    RUN_ATTEMPTS = "run_attempts"  # attempts that ended
    WORKFLOW_STEPS = "workflow_steps"  # completed workflow steps
    HISTORY_BYTES = "history_bytes"  # bytes appended to workflow histories
    REPLICATED_WRITES = "replicated_writes"  # row writes times standbys
    PENDING_TIMER_MINUTES = "pending_timer_minutes"  # waiting timers at the minute's start
    STORED_BYTE_MINUTES = "stored_byte_minutes"  # bytes stored at the minute's start
    API_REQUESTS = "api_requests"  # counted by routers; may undercount after a crash
    EGRESS_BYTES = "egress_bytes"  # bytes of request bodies sent to targets


class MeterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One sealed minute of one metric. All fields but `quantity` are its key.

    A record sent again is itself: the receiver refuses other content under the same key.
    """

    tenant_id: str  # TypeID, `tnt_...`
    cell: str  # name of the cell, or of the router (`router`) for api_requests
    store: int  # 0 is the cell's replicated store
    epoch: int  # ownership epoch under which it was counted
    host: str  # host incarnation, unique per process start
    minute: str  # RFC 3339 UTC, whole minute: `2026-09-28T12:00:00Z`
    metric: Metric
    region_policy: str
    quantity: int


class SealedUntil(msgspec.Struct, frozen=True, kw_only=True):
    """A store's word that all its records of minutes before `sealed_until` were acknowledged or refused:
    none will come later. Under one epoch it never falls."""

    store: int
    epoch: int  # of the cell: the owner that says so
    sealed_until: str  # RFC 3339 UTC, whole minute


class HostSealed(msgspec.Struct, frozen=True, kw_only=True):
    """A router incarnation's word of what it counted itself: all records of minutes before `sealed_until`
    were acknowledged or refused. It never falls."""

    host: str
    sealed_until: str  # RFC 3339 UTC, whole minute
    ended: bool = False  # it counts no more, and nothing of it is left


# --- moves of tenants between cells ------------------------------------------------------
class MoveSide(enum.StrEnum):
    """Which of the two cells of a move is spoken to."""

    SOURCE = "source"  # where the tenant lives when the move begins
    DESTINATION = "destination"  # where it is to live


class MoveVerb(enum.StrEnum):
    """What the control plane asks a cell to do for a move. Each may be asked again."""

    # of the source
    PUBLISH = "publish"  # hold the tenant; keep its changes for the other side
    BARRIER = "barrier"  # begin nothing new, until a deadline
    SEAL = "seal"  # write nothing more; answers with the last place in the log
    DEPART = "depart"  # the tenant lives elsewhere now
    CLEAN = "clean"  # delete a part of what is no longer needed
    # of the destination
    PREPARE = "prepare"  # be empty of the tenant, and ready for it
    SUBSCRIBE = "subscribe"  # copy, then follow
    VERIFY = "verify"  # compare what is settled with the source
    TAIL = "tail"  # after the seal: compare what changed since, and all numbers
    ACTIVATE = "activate"  # the tenant lives here now
    LOAD = "load"  # take the timers of the coming hours into the queue
    RELEASE = "release"  # follow no more
    # of either
    PROGRESS = "progress"  # how far it is
    ABORT = "abort"  # everything as before the move


class MoveOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes with a verb. Fields that a verb does not need are left out."""

    tenant_id: str  # TypeID
    attempt: int  # a takeover begins the next one
    epoch: int  # ownership epoch of the tenant before the move
    peer: str  # name of the other cell
    link: str = ""  # names publication, slot, role and subscription
    peer_url: str = ""  # DEPART, SEAL: where the destination's internal API is
    conninfo: str = ""  # PREPARE: where the source's rows are read
    schema: str = ""  # PREPARE: fingerprint of the source's migrations
    days: tuple[str, ...] = ()  # PREPARE: days of runs that the source keeps apart
    state: str = "ACTIVE"  # PREPARE: the tenant's state as people know it
    config: dict[str, object] = {}  # PREPARE
    config_version: int = 0  # PREPARE
    barrier_ms: int = 0  # BARRIER
    patience_ms: int = 0  # SEAL, TAIL, VERIFY: how long to wait for what is under way
    lsn: str = ""  # TAIL
    new_epoch: int = 0  # ACTIVATE, DEPART; ABORT: the epoch the tenant goes on under


#: Speaks for one cell to another; the key is derived from the installation's.
CELLS_KID = "cells"


def cells_key(installation_key: bytes) -> bytes:
    """The key with which cells of one installation sign what they hand on to each other."""
    return hmac.new(installation_key, b"clockhouse cells", hashlib.sha256).digest()


class ErrorCode(enum.StrEnum):
    """`code` of a problem document."""

    MALFORMED = "MALFORMED"  # 400: not JSON, not UTF-8, bad header
    UNAUTHENTICATED = "UNAUTHENTICATED"  # 401
    FORBIDDEN = "FORBIDDEN"  # 403: scope or tenant
    NOT_FOUND = "NOT_FOUND"  # 404
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"  # 405
    CONFLICT = "CONFLICT"  # 409: the state does not allow it
    RUN_UNDER_WAY = "RUN_UNDER_WAY"  # 409: an edit lost against a claim
    EPOCH_SUPERSEDED = "EPOCH_SUPERSEDED"  # 409: a newer claim exists
    IDEMPOTENCY_IN_PROGRESS = "IDEMPOTENCY_IN_PROGRESS"  # 409: same key still running
    STRICT_ALLOWANCE_EXCEEDED = "STRICT_ALLOWANCE_EXCEEDED"  # 409: with nearest_available
    WORKFLOW_ID_IN_USE = "WORKFLOW_ID_IN_USE"  # 409: another workflow is open under that id
    TENANT_ERASED = "TENANT_ERASED"  # 410: for good
    PRECONDITION_FAILED = "PRECONDITION_FAILED"  # 412: If-Match
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"  # 413
    NOT_OWNER = "NOT_OWNER"  # 421: the tenant is not (or no longer) placed here
    INVALID = "INVALID"  # 422: with `errors`
    TARGET_NOT_REGISTERED = "TARGET_NOT_REGISTERED"  # 422
    TARGET_NOT_APPROVED = "TARGET_NOT_APPROVED"  # 422
    IDEMPOTENCY_KEY_REUSED = "IDEMPOTENCY_KEY_REUSED"  # 422: same key, other body
    NONDETERMINISTIC_DEFINITION_CHANGE = "NONDETERMINISTIC_DEFINITION_CHANGE"  # 422: with the event
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"  # 429: with `scope`
    UNAVAILABLE = "UNAVAILABLE"  # 503
    UNCONFIRMED = "UNCONFIRMED"  # 503: done at home, not known to be anywhere else (STRICT)
    HOME_REGION_DOWN = (
        "HOME_REGION_DOWN"  # 503: kept in one region alone, which does not answer (SINGLE_REGION)
    )
    INTERNAL_ERROR = "INTERNAL_ERROR"  # 500: ours


#: What a problem document calls each kind; the same words whoever answers.
PROBLEM_TITLES: dict[ErrorCode, str] = {
    ErrorCode.MALFORMED: "The request could not be read",
    ErrorCode.UNAUTHENTICATED: "The request is not authenticated",
    ErrorCode.FORBIDDEN: "Not allowed",
    ErrorCode.NOT_FOUND: "Not found",
    ErrorCode.METHOD_NOT_ALLOWED: "The method is not allowed here",
    ErrorCode.CONFLICT: "The current state does not allow it",
    ErrorCode.RUN_UNDER_WAY: "A run began in the meantime",
    ErrorCode.EPOCH_SUPERSEDED: "A newer claim exists",
    ErrorCode.IDEMPOTENCY_IN_PROGRESS: "A request with this Idempotency-Key is still running",
    ErrorCode.STRICT_ALLOWANCE_EXCEEDED: "The allowance for strict jobs is used up at that second",
    ErrorCode.WORKFLOW_ID_IN_USE: "Another workflow has that id",
    ErrorCode.TENANT_ERASED: "The tenant was erased",
    ErrorCode.PRECONDITION_FAILED: "It was changed in the meantime",
    ErrorCode.PAYLOAD_TOO_LARGE: "Too large",
    ErrorCode.NOT_OWNER: "The tenant is not placed here",
    ErrorCode.INVALID: "The request is not valid",
    ErrorCode.TARGET_NOT_REGISTERED: "No approved target covers that address",
    ErrorCode.TARGET_NOT_APPROVED: "The target is not approved",
    ErrorCode.IDEMPOTENCY_KEY_REUSED: "The Idempotency-Key was used for another request",
    ErrorCode.NONDETERMINISTIC_DEFINITION_CHANGE: "That version would have done otherwise",
    ErrorCode.QUOTA_EXCEEDED: "Quota exceeded",
    ErrorCode.UNAVAILABLE: "Temporarily unavailable",
    ErrorCode.UNCONFIRMED: "Done at home, confirmed by no other region",
    ErrorCode.HOME_REGION_DOWN: "The only region that has it does not answer",
    ErrorCode.INTERNAL_ERROR: "Something went wrong here",
}


def problem_type(code: ErrorCode) -> str:
    """The `type` of a problem document (RFC 9457): one for each code, whoever answers."""
    return "urn:clockhouse:problem:" + code.value.lower().replace("_", "-")


# --- signatures --------------------------------------------------------------------------
class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who a signed request speaks for."""

    tenant_id: str = ""  # TypeID; empty for requests about no tenant
    actor: str  # `key:ch_live_...`, `user:usr_...`, `service:control-plane`, `cell:<name>`
    scopes: tuple[str, ...] = ()
    epoch: int = 0  # the sender's idea of the ownership epoch: a hint only


class BadSignature(Exception):
    """The request is not signed by a known key, is too old, or was changed on the way."""


def body_hash(body: bytes) -> str:
    """Hex SHA-256 of a body, as the signature covers it."""
    return hashlib.sha256(body).hexdigest()


def _digest(
    secret: bytes, kid: str, time_ms: int, method: str, target: str, caller: Caller, body: str
) -> str:
    content = "\n".join(
        (
            "v1",
            kid,
            str(time_ms),
            method,
            target,
            caller.tenant_id,
            caller.actor,
            " ".join(caller.scopes),
            str(caller.epoch),
            body,
        )
    )
    inner, outer = (half.copy() for half in _halves(secret))
    inner.update(content.encode())
    outer.update(inner.digest())
    return outer.hexdigest()


@functools.lru_cache(maxsize=256)
def _halves(secret: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    """HMAC-SHA256 (RFC 2104) under a key as far as it is the same for all texts: OpenSSL's own begins anew
    each time, which takes three times as long, twice for every request that passes a router."""
    key = hashlib.sha256(secret).digest() if len(secret) > 64 else secret
    key = key.ljust(64, b"\0")
    return hashlib.sha256(bytes(b ^ 0x36 for b in key)), hashlib.sha256(bytes(b ^ 0x5C for b in key))


def sign_request(
    *,
    kid: str,
    secret: bytes,
    now_ms: int,
    method: str,
    target: str,
    caller: Caller,
    body_sha256: str = UNSIGNED_BODY,
) -> dict[str, str]:
    """Headers that vouch for a request.

    `target` is the raw request target, path with query string, exactly as it is sent.
    `kid` names the key (`router`, `control`, or the cell's name).
    """
    return {
        TENANT_HEADER: caller.tenant_id,
        ACTOR_HEADER: caller.actor,
        SCOPES_HEADER: " ".join(caller.scopes),
        EPOCH_HEADER: str(caller.epoch),
        BODY_HASH_HEADER: body_sha256,
        SIGNATURE_HEADER: f"v1;kid={kid};t={now_ms};sig="
        + _digest(secret, kid, now_ms, method, target, caller, body_sha256),
    }


def _is_number(text: str) -> bool:
    """Whether it is digits that make a 64-bit number: `int` refuses thousands of them."""
    return text.isascii() and text.isdigit() and len(text) < 19


def verify_request(
    *,
    keys: Mapping[str, bytes],
    now_ms: int,
    method: str,
    target: str,
    headers: Mapping[str, str],
) -> Caller:
    """The caller a request speaks for, or `BadSignature`.

    `headers` must look names up without regard to case. Where the body's hash is not
    `UNSIGNED_BODY`, the receiver compares it with the body it read (`body_hash`).
    """
    raw = headers.get(SIGNATURE_HEADER, "")
    parts = dict(p.split("=", 1) for p in raw.split(";")[1:] if "=" in p)
    if not raw.startswith("v1;") or not {"kid", "t", "sig"} <= parts.keys():
        raise BadSignature("no signature")
    secret = keys.get(parts["kid"])
    if secret is None:
        raise BadSignature("unknown key")
    epoch = headers.get(EPOCH_HEADER, "0")
    if not (_is_number(parts["t"]) and _is_number(epoch) and parts["sig"].isascii()):
        raise BadSignature("malformed signature")
    time_ms = int(parts["t"])
    if abs(now_ms - time_ms) > SIGNATURE_TOLERANCE_MS:
        raise BadSignature("signature expired")
    caller = Caller(
        tenant_id=headers.get(TENANT_HEADER, ""),
        actor=headers.get(ACTOR_HEADER, ""),
        scopes=tuple(headers.get(SCOPES_HEADER, "").split()),
        epoch=int(epoch),
    )
    want = _digest(
        secret,
        parts["kid"],
        time_ms,
        method,
        target,
        caller,
        headers.get(BODY_HASH_HEADER, UNSIGNED_BODY),
    )
    if not hmac.compare_digest(want, parts["sig"]):
        raise BadSignature("signature does not match")
    return caller

"""The bodies that concern targets."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

from cells.api.texts import Body, Credential, Name, TargetId, job_path, prose, target_base_url


class AuthIn(Body):
    """How calls prove themselves beside their signature, which each call has."""

    type: Literal["HMAC_SHA256", "BEARER", "BASIC"] = "HMAC_SHA256"
    token: Credential | None = Field(default=None, description="BEARER")
    username: Credential | None = Field(default=None, description="BASIC")
    password: Credential | None = Field(default=None, description="BASIC")
    secret_arn: Name | None = Field(default=None, description="Where its owner keeps the secret; only noted.")

    @model_validator(mode="after")
    def _fits(self) -> AuthIn:
        needed = {"BEARER": {"token"}, "BASIC": {"username", "password"}}.get(self.type, set())
        given = {name for name in ("token", "username", "password") if getattr(self, name) is not None}
        if missing := sorted(needed - given):
            names = " and ".join(missing)
            raise PydanticCustomError("auth", "{type} needs {names}", {"type": self.type, "names": names})
        if extra := sorted(given - needed):
            names = " or ".join(extra)
            raise PydanticCustomError("auth", "{type} takes no {names}", {"type": self.type, "names": names})
        if self.username is not None and ":" in self.username:
            raise PydanticCustomError("auth", "a user name holds no colon", {"at": "username"})
        return self


class DrillIn(Body):
    """Deliver a share of the calls twice, with the same key and token: to see that it copes."""

    duplicate_percent: int = Field(ge=1, le=100)


_BaseUrl: TypeAlias = Annotated[str, AfterValidator(target_base_url)]
_Concurrency: TypeAlias = Annotated[int, Field(ge=1, le=100_000)]
_Slo: TypeAlias = Annotated[int, Field(ge=1, le=900_000)]
_Prose: TypeAlias = Annotated[str, StringConstraints(max_length=2000), AfterValidator(prose)]


class TargetCreate(Body):
    """A place to call. It must be approved before jobs may use it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "target_id": "tgt_reports_rollup",
                    "owner_team": "analytics-platform",
                    "base_url": "https://rollups.analytics.internal",
                    "max_concurrency": 200,
                    "initial_concurrency": 50,
                    "latency_slo_ms": 2000,
                    "auth": {
                        "type": "HMAC_SHA256",
                        "secret_arn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:rollups",
                    },
                }
            ]
        }
    )

    target_id: TargetId | None = Field(default=None, description="Chosen by you, or made by us.")
    owner_team: Name | None = None
    base_url: _BaseUrl
    max_concurrency: _Concurrency = 100
    initial_concurrency: _Concurrency | None = Field(default=None, description="max_concurrency, if absent.")
    latency_slo_ms: _Slo = 2000
    auth: AuthIn = AuthIn()
    drill: DrillIn | None = Field(default=None, description="The idempotency drill.")
    description: _Prose | None = None

    @model_validator(mode="after")
    def _ordered(self) -> TargetCreate:
        if self.initial_concurrency is not None and self.initial_concurrency > self.max_concurrency:
            raise PydanticCustomError(
                "concurrency",
                "is {initial}, above max_concurrency ({most})",
                {
                    "at": "initial_concurrency",
                    "initial": self.initial_concurrency,
                    "most": self.max_concurrency,
                },
            )
        return self


class TargetPatch(Body):
    """A JSON merge patch over a target. Another `base_url` needs a new approval."""

    owner_team: Name | None = None
    base_url: _BaseUrl | None = None
    max_concurrency: _Concurrency | None = None
    initial_concurrency: _Concurrency | None = None
    latency_slo_ms: _Slo | None = None
    auth: AuthIn | None = None
    drill: DrillIn | None = Field(default=None, description="null ends the drill.")
    description: _Prose | None = None
    disabled: bool | None = Field(default=None, description="true: no calls until it is approved again.")


class TestIn(Body):
    """A call to try a target with."""

    path: Annotated[str, AfterValidator(job_path)] = Field(
        default="", description="Appended to the target's base URL; a query may follow."
    )
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    payload: JsonValue = Field(default=None, description="The body; `{}` if absent.")
    timeout_seconds: int = Field(default=10, ge=1, le=30)


class RotateIn(Body):
    """A new signing secret; calls are signed with old and new during the overlap."""

    overlap_seconds: int = Field(default=86_400, ge=0, le=30 * 86_400)

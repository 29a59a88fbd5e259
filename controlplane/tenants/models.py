"""Shared tables: who exists. A login, the router and the biller ask them across tenants."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models.functions import Lower, Now
from django_tenants.models import DomainMixin, TenantMixin

from controlplane.identity import INVITATION, MEMBER, TENANT, USER, encode, new_id
from controlplane.tenants.roles import Role, scopes_of

SLUG = RegexValidator(
    r"\A[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?\Z", "Lower case letters, digits and inner hyphens, at most 48."
)


class UserManager(BaseUserManager["User"]):
    """Finds and makes users by email, in lower case."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

    def get_by_natural_key(self, username: str | None) -> User:
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser, PermissionsMixin):
    """A person. May belong to several tenants; `is_staff` makes an operator."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField(unique=True)
    name = models.CharField(max_length=120, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    joined_at = models.DateTimeField(db_default=Now())
    # How pages look to this person; empty: as the browser says, then as the workspace does.
    timezone = models.CharField(max_length=64, blank=True, default="", db_default="")
    theme = models.CharField(max_length=8, blank=True, default="", db_default="")

    objects = UserManager()
    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(email=Lower("email")), name="user_email_lower_case")
        ]

    def __str__(self) -> str:
        return self.email

    def get_full_name(self) -> str:
        return self.name or self.email

    def get_short_name(self) -> str:
        return self.name.split(" ")[0] if self.name else self.email

    @property
    def public_id(self) -> str:
        return encode(USER, self.id)

    @property
    def actor_name(self) -> str:
        return f"user:{self.id}"


class TenantState(models.TextChoices):
    """The life of a tenant; what its cell is told."""

    ACTIVE = "ACTIVE"  # works
    SUSPENDED = "SUSPENDED"  # nothing starts, everything is kept and can be read


class Tenant(TenantMixin):
    """A customer. `version` counts every change: it is the ETag and the cell's config_version."""

    auto_create_schema = False
    auto_drop_schema = False

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    slug = models.CharField(max_length=48, unique=True, validators=[SLUG])
    name = models.CharField(max_length=120)
    state = models.CharField(max_length=12, choices=TenantState.choices, default=TenantState.ACTIVE)
    home_region = models.ForeignKey("topology.Region", on_delete=models.PROTECT, related_name="tenants")
    default_region_policy = models.CharField(max_length=20, default="HOME_ASYNC")
    default_window_seconds = models.IntegerField(default=300)
    default_once_window_seconds = models.IntegerField(default=60)
    #: How long a workflow may undo before it needs a person; definitions may say otherwise.
    compensation_deadline_seconds = models.IntegerField(default=86_400)
    #: Since when its own people have all of its work wait; null: it works.
    paused_at = models.DateTimeField(null=True)
    #: Since when its LOW work waits because its budget is spent; null: it does not.
    low_delayed_at = models.DateTimeField(null=True)
    version = models.BigIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(state__in=TenantState.values), name="tenant_state_is_known"
            ),
            models.CheckConstraint(
                condition=models.Q(default_region_policy__in=["HOME_ASYNC", "STRICT", "SINGLE_REGION"]),
                name="tenant_region_policy_is_known",
            ),
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def public_id(self) -> str:
        return encode(TENANT, self.id)


class Domain(DomainMixin):
    """django-tenants asks for it; we route by path (`/t/<slug>/`), so it stays empty."""


class Quota(models.Model):
    """How much of everything a tenant may use. Over it work waits or is refused, never lost."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True, related_name="quota")
    job_runs_per_second = models.IntegerField(default=100, validators=[MinValueValidator(1)])
    workflow_steps_per_second = models.IntegerField(default=100, validators=[MinValueValidator(0)])
    strict_jobs_per_second = models.IntegerField(default=0, validators=[MinValueValidator(0)])
    pending_timers = models.BigIntegerField(default=1_000_000, validators=[MinValueValidator(0)])
    running_runs = models.IntegerField(default=10_000, validators=[MinValueValidator(1)])
    api_requests_per_second = models.IntegerField(default=100, validators=[MinValueValidator(1)])

    #: The quotas, in the order they are shown.
    NAMES = (
        "job_runs_per_second",
        "workflow_steps_per_second",
        "strict_jobs_per_second",
        "pending_timers",
        "running_runs",
        "api_requests_per_second",
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(
                    job_runs_per_second__gte=1,
                    workflow_steps_per_second__gte=0,
                    strict_jobs_per_second__gte=0,
                    pending_timers__gte=0,
                    running_runs__gte=1,
                    api_requests_per_second__gte=1,
                ),
                name="quota_is_sane",
            )
        ]

    def __str__(self) -> str:
        return f"quota of {self.tenant_id}"

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.NAMES}


class Membership(models.Model):
    """A person in a tenant."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=12, choices=Role.choices)
    may_see_payloads = models.BooleanField(default=False)
    version = models.IntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "user"], name="membership_once"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.role} of {self.tenant_id}"

    @property
    def public_id(self) -> str:
        return encode(MEMBER, self.id)

    @property
    def scopes(self) -> frozenset[str]:
        return scopes_of(self.role, may_see_payloads=self.may_see_payloads)


class Invitation(models.Model):
    """A person asked to join a tenant. The link in their mail names it, signed; see `invitations.py`."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=12, choices=Role.choices)
    may_see_payloads = models.BooleanField(default=False)
    invited_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    nonce = models.CharField(max_length=32)  # drawn anew when sent again: older links end
    created_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "email"],
                condition=models.Q(accepted_at=None, revoked_at=None),
                name="invitation_one_pending",
            ),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="invitation_role_is_known"),
            models.CheckConstraint(
                condition=models.Q(email=Lower("email")), name="invitation_email_lower_case"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "id"], name="invitation_by_tenant")]

    def __str__(self) -> str:
        return f"{self.email} to {self.tenant_id}"

    @property
    def public_id(self) -> str:
        return encode(INVITATION, self.id)


class ApiKey(models.Model):
    """A key, without its secret. Tenantless ones are operators'."""

    id = models.CharField(primary_key=True, max_length=16)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.CASCADE, null=True, blank=True, related_name="api_keys"
    )
    name = models.CharField(max_length=120)
    sha256 = models.CharField(max_length=64, unique=True)  # of the whole key text
    scopes = ArrayField(models.CharField(max_length=32))
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    # Set once rotated: the key that takes over. Both live until this one expires.
    successor = models.OneToOneField(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="predecessor"
    )

    class Meta:
        indexes: ClassVar = [models.Index(fields=["tenant", "created_at", "id"], name="api_key_by_tenant")]

    def __str__(self) -> str:
        return self.id


class WorkspaceSchema(models.Model):
    """One schema of the pool and what stands in it. Kept here, in the shared schema."""

    class State(models.TextChoices):
        POOLED = "POOLED"  # made, waiting for a tenant
        CLAIMED = "CLAIMED"  # a tenant's

    schema = models.CharField(primary_key=True, max_length=63)
    version = models.CharField(max_length=120)  # last migration of `workspace` applied
    state = models.CharField(max_length=8, choices=State.choices, default=State.POOLED)
    tenant_id = models.UUIDField(null=True, blank=True, unique=True)
    created_at = models.DateTimeField(db_default=Now())
    claimed_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True, default="")  # of the last migration that failed

    class Meta:
        db_table = "tenant_schema_version"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(state="POOLED", tenant_id__isnull=True)
                | models.Q(state="CLAIMED", tenant_id__isnull=False),
                name="claimed_by_a_tenant",
            )
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["created_at"], condition=models.Q(state="POOLED"), name="workspace_schema_pooled"
            ),
            models.Index(fields=["version", "schema"], name="workspace_schema_by_version"),
        ]

    def __str__(self) -> str:
        return self.schema


def tenant_uuid(text: str) -> uuid.UUID | None:
    """The uuid of a tenant's TypeID, or None."""
    from controlplane.identity import decode

    return decode(TENANT, text)

"""Gives an installation its first region, cells, operator and demo tenant.

Reads a JSON document from standard input, writes one to standard output. Run again with the
same input it changes nothing and says the same.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from cells.contract import Scope
from controlplane.actors import Actor, service
from controlplane.errors import Refused
from controlplane.events.models import AuditEvent
from controlplane.tenants.actions.api_keys import create_api_key
from controlplane.tenants.actions.members import add_member
from controlplane.tenants.actions.tenants import create_tenant, set_quotas
from controlplane.tenants.keys import KeyText, parse_key
from controlplane.tenants.models import ApiKey, Membership, Tenant, User
from controlplane.tenants.roles import Role
from controlplane.topology.actions.cells import open_cell, register_cell
from controlplane.topology.actions.provisioning import add_cell, check_cell
from controlplane.topology.actions.regions import register_region
from controlplane.topology.actions.sites import register_site
from controlplane.topology.cell_client import CellUnreachable
from controlplane.topology.models import CellState, Placement
from controlplane.topology.push import push_tenant

_ACTOR = service("bootstrap")
_REASON = "bootstrap of the installation"
_DEMO_QUOTAS = {
    "job_runs_per_second": 2_000,
    "strict_jobs_per_second": 100,
    "api_requests_per_second": 500,
}


class CellInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cell. With both engines it is added as `clockhouse cell add` does it, else only made known."""

    name: str
    url: str
    key_hex: str
    #: None: what it was given before, by whomever; a new cell is taken to carry the usual.
    capacity_runs_per_second: int | None = None
    database_url: str | None = None
    valkey_url: str | None = None
    keepers: dict[str, str] = msgspec.field(default_factory=dict)  # of its sites: region, and address

    @property
    def key(self) -> bytes:
        try:
            return bytes.fromhex(self.key_hex)
        except ValueError as e:
            raise CommandError(f"{self.name}: key_hex is not hexadecimal") from e


class DemoInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    slug: str
    name: str
    email: str
    password: str
    api_key: str


class OperatorInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    email: str
    password: str
    api_key: str


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    region: str
    cells: list[CellInput]
    demo: DemoInput
    operator: OperatorInput


def _user(email: str, password: str, *, staff: bool) -> User:
    email = email.strip().lower()
    user = User.objects.filter(email=email).first()
    if user is None:
        return User.objects.create_user(email, password, is_staff=staff, is_superuser=staff)
    if not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
    return user


def _key(text: str, *, tenant_id: uuid.UUID | None, name: str, scope: Scope) -> KeyText:
    key = parse_key(text)
    if key is None or key.operator != (tenant_id is None):
        raise CommandError(f"the {name} is not a key of its kind")
    known = ApiKey.objects.filter(pk=key.id).first()
    if known is None:
        create_api_key(
            tenant_id=tenant_id, name=name, scopes=[scope.value], text=key, actor=_ACTOR, reason=_REASON
        )
    elif known.sha256 != key.sha256 or known.tenant_id != tenant_id:
        raise CommandError(f"the {name} has the id of another key")
    return key


def _demo(wanted: DemoInput, region: str, owner: User) -> Tenant:
    tenant = Tenant.objects.filter(slug=wanted.slug).first()
    if tenant is None:
        tenant = create_tenant(
            slug=wanted.slug, name=wanted.name, home_region=region, quotas=_DEMO_QUOTAS,
            actor=_ACTOR, reason=_REASON,
        )  # fmt: skip
    else:
        tenant = set_quotas(tenant_id=tenant.id, quotas=_DEMO_QUOTAS, actor=_ACTOR, reason=_REASON)
    if not Membership.objects.filter(tenant=tenant, user=owner).exists():
        actor = Actor(name=_ACTOR.name, operator=True, owner=True, source=_ACTOR.source)
        add_member(tenant_id=tenant.id, email=owner.email, role=Role.OWNER, actor=actor, reason=_REASON)
    return tenant


def _push(tenant: Tenant, seconds: float) -> bool:
    """Has the cell told, for so long; the outbox goes on with it otherwise."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            push_tenant(str(tenant.id))
            return True
        except CellUnreachable:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)


def _add(cell: CellInput, region: str, seconds: float) -> None:
    """Adds a cell with its engines, and opens it once it is ready: but not one that an operator closed."""
    added = add_cell(
        name=cell.name, region=region, url=cell.url, key=cell.key, database_url=cell.database_url or "",
        valkey_url=cell.valkey_url or "", capacity_runs_per_second=cell.capacity_runs_per_second,
        movable=False, actor=_ACTOR, reason=_REASON,
    )  # fmt: skip
    for warning in added.warnings:
        sys.stderr.write(f"{cell.name}: {warning}\n")
    if (
        added.cell.state != CellState.CORDONED
        or AuditEvent.objects.filter(action="cell.set_state", subject=cell.name).exists()
    ):
        return
    deadline = time.monotonic() + seconds
    while not (readiness := check_cell(name=cell.name)).ready:
        if time.monotonic() > deadline:
            raise CommandError(f"{cell.name} is not ready: {'; '.join(readiness.waits_for)}")
        time.sleep(0.1)
    open_cell(name=cell.name, actor=_ACTOR, reason=_REASON)


class Command(BaseCommand):
    help = __doc__
    requires_system_checks = ()

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--wait-seconds", type=float, default=10.0, help="for the cell to answer")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=Input)
        except msgspec.DecodeError as e:
            raise CommandError(f"the input is not as expected: {e}") from e
        try:
            register_region(name=wanted.region, actor=_ACTOR, reason=_REASON)
            for cell in wanted.cells:
                if cell.database_url and cell.valkey_url:
                    _add(cell, wanted.region, options["wait_seconds"])
            with transaction.atomic():
                tenant = self._ensure(wanted)
        except Refused as e:
            raise CommandError(str(e)) from e
        pushed = _push(tenant, options["wait_seconds"])
        placement = Placement.objects.get(tenant=tenant)
        result = {
            "tenant_id": tenant.public_id,
            "slug": tenant.slug,
            "region": wanted.region,
            "cell": placement.cell_id,
            "epoch": placement.epoch,
            "pushed": pushed,
            "api_key": wanted.demo.api_key,
            "operator_api_key": wanted.operator.api_key,
        }
        self.stdout.write(json.dumps(result))

    def _ensure(self, wanted: Input) -> Tenant:
        for cell in wanted.cells:
            if not (cell.database_url and cell.valkey_url):
                register_cell(
                    name=cell.name, region=wanted.region, url=cell.url, key=cell.key,
                    capacity_runs_per_second=cell.capacity_runs_per_second, actor=_ACTOR, reason=_REASON,
                )  # fmt: skip
            for region, keeper_url in cell.keepers.items():
                register_site(
                    cell=cell.name, region=region, keeper_url=keeper_url, actor=_ACTOR, reason=_REASON
                )
        owner = _user(wanted.demo.email, wanted.demo.password, staff=False)
        _user(wanted.operator.email, wanted.operator.password, staff=True)
        tenant = _demo(wanted.demo, wanted.region, owner)
        _key(wanted.demo.api_key, tenant_id=tenant.id, name="demo key", scope=Scope.ADMIN)
        _key(wanted.operator.api_key, tenant_id=None, name="operator key", scope=Scope.OPERATOR)
        return tenant

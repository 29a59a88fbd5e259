"""A member, signed in, whose tenant lives on a cell we can see into."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from django.test import Client

from controlplane.tenants.models import Membership
from tests.component.controlplane.console.cell import Cell
from tests.component.controlplane.factories import CellFactory, MembershipFactory

_KEY = bytes(range(32))


@pytest.fixture
def cell(control: None) -> Iterator[Cell]:
    """A cell that is registered and answers; the only one, so that tenants are placed on it."""
    with Cell(f"cell-{uuid.uuid4().hex[:10]}", _KEY) as cell:
        CellFactory(name=cell.name, url=cell.url, key=_KEY)
        yield cell


@dataclass
class Signed:
    """A browser session of a member."""

    browser: Client
    membership: Membership

    @property
    def base(self) -> str:
        return f"/t/{self.membership.tenant.slug}"


def sign_in(role: str = "owner", **more: object) -> Signed:
    """A new member of a new tenant, signed in."""
    membership = MembershipFactory(role=role, **more)
    browser = Client()
    browser.force_login(membership.user, backend="django.contrib.auth.backends.ModelBackend")
    return Signed(browser, membership)


@pytest.fixture
def owner(cell: Cell) -> Signed:
    return sign_in("owner")

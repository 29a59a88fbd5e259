"""Billing needs tenants that live somewhere."""

from tests.component.controlplane.conftest import control, ownership, ownership_url

__all__ = ["control", "ownership", "ownership_url"]

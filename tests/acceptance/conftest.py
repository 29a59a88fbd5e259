"""The order of acceptance tests."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for a sealed minute of the stack that all share comes last: it is sealed by then."""
    items.sort(key=lambda item: item.get_closest_marker("metered") is not None)

"""What the environment of `make run` asks for."""

from __future__ import annotations

import pytest

from deploy.children import CannotStart
from deploy.settings import cell_hosts, read_options


def names(**environment: str) -> list[tuple[str, str | None]]:
    return [(host.name, host.roles) for host in cell_hosts(read_options(environment))]


def test_a_cell_is_one_process_or_several() -> None:
    assert names(CLOCKHOUSE_CELLS="x,y") == [("cell-x", None), ("cell-y", None)]
    assert names(CLOCKHOUSE_CELLS="x", CLOCKHOUSE_CELL_HOSTS="3") == [
        ("cell-x", None),
        ("cell-x-b", None),
        ("cell-x-c", None),
    ]
    split = cell_hosts(
        read_options({"CLOCKHOUSE_CELLS": "x", "CLOCKHOUSE_CELL_HOSTS": "api, loader; dispatcher,executor"})
    )
    assert [(host.name, host.roles, host.serves_api) for host in split] == [
        ("cell-x", "api, loader", True),
        ("cell-x-b", "dispatcher,executor", False),
    ]


@pytest.mark.parametrize(
    ("cells", "hosts"), [("x", "0"), ("x", "27"), ("x", "executor;loader"), ("x,x-b", "2"), ("x", ";")]
)
def test_what_cannot_be_is_told(cells: str, hosts: str) -> None:
    with pytest.raises(CannotStart, match="CLOCKHOUSE_CELL_HOSTS"):
        read_options({"CLOCKHOUSE_CELLS": cells, "CLOCKHOUSE_CELL_HOSTS": hosts})

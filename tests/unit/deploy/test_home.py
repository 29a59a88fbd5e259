"""An installation remembers its secrets, and keeps them to itself."""

from __future__ import annotations

import re
from pathlib import Path

from deploy.home import Home, State, new_api_key, read_json, write_atomically
from deploy.logs import cut_grown, tail


def test_secrets_are_the_same_in_the_next_run(tmp_path: Path) -> None:
    home = Home(tmp_path)
    state = home.load()
    state.cell_key("a")
    state.engine_password("postgres-a")
    state.ports["router"] = 4711
    home.keep(state)
    assert home.load() == state
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600


def test_two_installations_share_no_secret() -> None:
    one, two = State(), State()
    assert {one.secret_key, one.router_key, one.api_key, one.password}.isdisjoint(
        {two.secret_key, two.router_key, two.api_key, two.password}
    )


def test_a_state_with_unknown_fields_is_read(tmp_path: Path) -> None:
    write_atomically(tmp_path / "state.json", {"installation": "abc", "of_another_version": 1})
    assert Home(tmp_path).load().installation == "abc"


def test_a_damaged_file_reads_as_empty(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    assert read_json(tmp_path / "x.json") == {}
    assert read_json(tmp_path / "y.json") == {}


def test_api_keys_have_three_parts() -> None:
    assert re.fullmatch(r"ch_live_[a-z2-7]{16}_[A-Za-z0-9-]{43}", new_api_key("ch_live"))


def test_a_grown_log_is_cut_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    with log.open("ab", buffering=0) as child:
        child.write(b"x" * 100 + b"\nlast before\n")
        cut_grown(tmp_path, max_bytes=50)
        child.write(b"first after\n")
    assert log.read_bytes() == b"first after\n"
    assert (tmp_path / "one.log.1").read_bytes().endswith(b"last before\n")
    assert tail(log) == "first after"


def test_a_tail_begins_with_this_run(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("an earlier run\nthis run\n")
    assert tail(tmp_path / "a.log", since=len("an earlier run\n")) == "this run"
    assert tail(tmp_path / "none.log") == "(no log)"

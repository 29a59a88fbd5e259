"""Addresses and keys: where they come from, and where a key may go."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from controlplane.client.errors import ConfigurationError
from controlplane.client.profiles import (
    Profiles,
    Settings,
    check_url,
    find_settings,
    profile_file,
    read_profiles,
    write_profiles,
)

STORED = Profiles(
    default="work",
    profiles={
        "work": {"api_url": "https://work.example", "api_key": "ch_live_w"},
        "home": {"api_url": "https://home.example", "api_key": "ch_live_h", "tenant_id": "tnt_1"},
    },
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "config" / "profiles.toml"
    write_profiles(file, STORED)
    return file


def test_the_file_is_its_owners_and_reads_as_written(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert read_profiles(file) == STORED
    assert list(file.parent.iterdir()) == [file]
    odd = Profiles(profiles={"odd": {"api_url": 'https://x/"\\\n\t\x7fé', "api_key": "k"}})
    write_profiles(file, odd)
    assert read_profiles(file) == odd


def test_a_name_that_would_break_the_file_is_refused(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="no name"):
        write_profiles(file, Profiles(profiles={"a]\n[b": {}}))
    assert read_profiles(file) == STORED


def find(file: Path, environment: dict[str, str] | None = None, **given: str) -> Settings:
    return find_settings(file=file, environment=environment or {}, **given)  # type: ignore[arg-type]


ENVIRONMENT = {"CLOCKHOUSE_API_URL": "https://env.example", "CLOCKHOUSE_API_KEY": "ch_live_e"}


@pytest.mark.parametrize(
    ("environment", "given", "expected"),
    [
        ({}, {}, ("https://work.example", "ch_live_w", "profile work")),
        (ENVIRONMENT, {}, ("https://env.example", "ch_live_e", "environment")),
        (ENVIRONMENT, {"profile": "home"}, ("https://home.example", "ch_live_h", "profile home")),
        ({"CLOCKHOUSE_PROFILE": "home"}, {}, ("https://home.example", "ch_live_h", "profile home")),
        (
            ENVIRONMENT,
            {"api_url": "http://a:1/", "api_key": "ch_live_a"},
            ("http://a:1", "ch_live_a", "arguments"),
        ),
        (ENVIRONMENT, {"api_url": "http://a:1"}, ("http://a:1", "ch_live_e", "environment")),
    ],
)
def test_the_order_of_sources(
    file: Path, environment: dict[str, str], given: dict[str, str], expected: tuple[str, str, str]
) -> None:
    found = find(file, environment, **given)
    assert (found.api_url, found.api_key, found.source) == expected


def test_a_profiles_key_goes_nowhere_else(file: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"key of profile work is for https://work\.example"):
        find(file, {"CLOCKHOUSE_API_URL": "https://evil.example"})
    with pytest.raises(ConfigurationError, match="key of profile home"):
        find(file, profile="home", api_url="https://evil.example")


def test_what_is_missing_is_said_with_what_to_do(tmp_path: Path) -> None:
    none = tmp_path / "none.toml"
    with pytest.raises(ConfigurationError, match="no API address: `clockhouse login`"):
        find(none)
    with pytest.raises(ConfigurationError, match="no API key"):
        find(none, {"CLOCKHOUSE_API_URL": "https://x.example"})
    with pytest.raises(ConfigurationError, match="no profile nope"):
        find(none, profile="nope")
    (tmp_path / "bad.toml").write_text("a = = b")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        find(tmp_path / "bad.toml")


def test_keys_are_in_no_repr(file: Path) -> None:
    assert "ch_live_w" not in repr(find(file))
    assert "ch_live_w" not in repr(STORED)


@pytest.mark.parametrize("text", ["", "example.com", "ftp://x", "https://", "https://x?y=1", "file:///etc"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigurationError):
        check_url(text)


def test_addresses_end_before_the_version() -> None:
    assert check_url(" https://api.example/v1/ ") == "https://api.example"


def test_where_the_file_is(tmp_path: Path) -> None:
    assert profile_file({"CLOCKHOUSE_CONFIG": "/x/p.toml"}) == Path("/x/p.toml")
    assert profile_file({"XDG_CONFIG_HOME": "/c"}) == Path("/c/clockhouse/profiles.toml")

import pytest

from cells.config import ROLES, Settings, SettingsError

GOOD = {
    "CELL_NAME": "local-shared-1",
    "CELL_REGION": "local",
    "CELL_DATABASE_URL": "postgresql://cell@127.0.0.1:5432/cell",
    "CELL_VALKEY_URL": "redis://127.0.0.1:6379/0",
    "CELL_BIND": "127.0.0.1:8101",
    "CELL_KEYS": f"local-shared-1:{'ab' * 32},older:{'cd' * 32}",
    "CELL_INSTALLATION_KEY": f"{'00' * 32},{'11' * 32}",
}


def test_required_settings_are_enough() -> None:
    settings = Settings.from_env(GOOD)
    assert (settings.bind_host, settings.bind_port) == ("127.0.0.1", 8101)
    assert settings.kid == "local-shared-1"
    assert settings.keys == {"local-shared-1": b"\xab" * 32, "older": b"\xcd" * 32}
    assert settings.installation_keys == (bytes(32), b"\x11" * 32)
    assert settings.roles == frozenset(ROLES)
    assert settings.executor_slots == 1024
    assert settings.egress_allow == frozenset()
    assert settings.control_url == ""


def test_optional_settings_are_read() -> None:
    settings = Settings.from_env(
        GOOD
        | {
            "CELL_EGRESS_ALLOW": "loopback, 10.20.0.0/16",
            "CELL_EXECUTOR_SLOTS": "64",
            "CELL_LOG_LEVEL": "warning",
            "CELL_ROLES": "api",
            "CELL_CONTROL_URL": "http://127.0.0.1:8000",
        },
        roles="executor,reaper",
    )
    assert settings.egress_allow == {"loopback", "10.20.0.0/16"}
    assert settings.executor_slots == 64
    assert settings.log_level == "WARNING"
    assert settings.roles == {"executor", "reaper"}
    assert settings.control_url == "http://127.0.0.1:8000"


def test_every_fault_is_named_at_once() -> None:
    broken = GOOD | {
        "CELL_NAME": "",
        "CELL_DATABASE_URL": "mysql://x",
        "CELL_BIND": "8101",
        "CELL_KEYS": "a:zz",
        "CELL_INSTALLATION_KEY": "abcd",
        "CELL_EGRESS_ALLOW": "everything",
        "CELL_EXECUTOR_SLOTS": "0",
        "CELL_LOG_LEVEL": "loud",
    }
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(broken, roles="api,cook")
    assert [fault.split(" ")[0].rstrip(":") for fault in caught.value.faults] == [
        "CELL_BIND",
        "CELL_NAME",
        "CELL_DATABASE_URL",
        "CELL_KEYS",
        "CELL_INSTALLATION_KEY",
        "CELL_EGRESS_ALLOW",
        "CELL_EXECUTOR_SLOTS",
        "CELL_LOG_LEVEL",
        "--roles",
    ]


def test_nothing_secret_is_shown() -> None:
    shown = repr(Settings.from_env(GOOD))
    assert "ab" * 8 not in shown
    assert "\\x" not in shown
    assert "postgresql" not in shown


@pytest.mark.parametrize("keys", ["a", ":ab", "a:" + "ab" * 4, "a:" + "ab" * 32 + ",a:" + "cd" * 32])
def test_unusable_keys(keys: str) -> None:
    with pytest.raises(SettingsError, match="CELL_KEYS"):
        Settings.from_env(GOOD | {"CELL_KEYS": keys})


def test_history_is_kept_where_and_as_long_as_one_says() -> None:
    settings = Settings.from_env(GOOD)
    assert (settings.lake, settings.runs_kept_days, settings.history_kept_days) == ("", 30, 396)
    settings = Settings.from_env(
        GOOD
        | {
            "CELL_LAKE": "s3://history/cells",
            "CELL_LAKE_ENDPOINT": "http://127.0.0.1:9000",
            "CELL_RUNS_KEPT_DAYS": "7",
            "CELL_HISTORY_KEPT_DAYS": "90",
        }
    )
    assert (settings.lake, settings.lake_endpoint) == ("s3://history/cells", "http://127.0.0.1:9000")
    assert (settings.runs_kept_days, settings.history_kept_days) == (7, 90)
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(GOOD | {"CELL_LAKE": "/var/lake", "CELL_HISTORY_KEPT_DAYS": "29"})
    assert caught.value.faults == [
        "CELL_LAKE: file:///folder or s3://bucket/prefix",
        "CELL_HISTORY_KEPT_DAYS is less than CELL_RUNS_KEPT_DAYS",
    ]

"""Addresses of targets, and paths that must stay below them."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.api.paths import base_url, below, check_path, target_url


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("https://email.internal/v1", "https://email.internal/v1"),
        ("HTTPS://Email.Internal:443/v1/", "https://email.internal/v1"),
        ("http://example.com:80", "http://example.com"),
        ("http://example.com:8080/", "http://example.com:8080"),
        ("https://example.com./a", "https://example.com/a"),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("http://[::1]:9000/x", "http://[::1]:9000/x"),
        ("http://[2001:DB8::1]", "http://[2001:db8::1]"),
        ("https://a_b.example/%7Euser", "https://a_b.example/%7Euser"),
    ],
)
def test_a_base_url_has_one_form(given: str, canonical: str) -> None:
    assert base_url(given) == canonical
    assert base_url(canonical) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "email.internal/v1",
        "//email.internal",
        "ftp://email.internal",
        "javascript:alert(1)",
        "https://",
        "https:///v1",
        "https://user:secret@email.internal",
        "https://user@email.internal",
        "https://email.internal?x=1",
        "https://email.internal/?",
        "https://email.internal/#x",
        "https://email.internal#",
        "https://email.internal:0",
        "https://email.internal:65536",
        "https://email.internal:",
        "https://email.internal:8o",
        "https://127.1",
        "https://0x7f000001",
        "https://0x7f.1",
        "https://2130706433",
        "https://0177.0.0.1",
        "https://1.2.3.4.5",
        "https://[fe80::1%25eth0]",
        "https://[::1",
        "https://::1",
        "https://-bad.example",
        "https://a..example",
        "https://exämple.com",
        "https://evil.example\\@good.example",
        "https://good.example\r\nHost: evil",
        " https://good.example",
        "https://good.example/a b",
        "https://good.example/../x",
        "https://" + "a" * 64 + ".example",
        "https://good.example/" + "a" * 1100,
    ],
)
def test_what_is_no_base_url_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        base_url(text)


@pytest.mark.parametrize(
    "path", ["", "/", "/v1/digests", "/a;b=c/d", "/a/", "/%E2%82%AC", "/a:b@c", "/v1?x=1&y=a/b?c", "?x=1"]
)
def test_ordinary_paths_are_taken_as_they_are(path: str) -> None:
    assert check_path(path, query=True) == path


@pytest.mark.parametrize(
    "path",
    [
        "v1",
        "//evil.example",
        "/a//b",
        "/..",
        "/../x",
        "/a/../b",
        "/a/..",
        "/./a",
        "/%2e%2e/x",
        "/%2E./x",
        "/..;/x",
        "/..%3b/x",
        "/%252e%252e/x",
        "/%25252e%25252e/x",
        "/a%2fb",
        "/a%5cb",
        "/a%252fb",
        "/a\\b",
        "/a b",
        "/a\tb",
        "/a\r\nX: y",
        "/a%0d%0ab",
        "/a%00",
        "/a?x=%0a",
        "/a%",
        "/a%4",
        "/a%zz",
        "/ä",
        "/a#b",
        "@evil.example",
        ":80/x",
        "/" + "a" * 2048,
    ],
)
def test_paths_that_might_escape_are_refused(path: str) -> None:
    with pytest.raises(ValueError):
        check_path(path, query=True)


@given(st.text(alphabet="/.%2eE5cCfF;?\\a:@0d", max_size=24))
def test_no_accepted_path_leaves_its_base(path: str) -> None:
    base = "https://good.example/base"
    try:
        check_path(path, query=True)
    except ValueError:
        return
    parts = urlsplit(base + path)
    assert parts.netloc == "good.example"
    assert parts.path == "/base" or parts.path.startswith("/base/")
    assert not {".", ".."} & set(parts.path.split("/"))


@given(st.text(max_size=40))
def test_any_text_is_a_base_url_or_a_value_error(text: str) -> None:
    for candidate in (text, "https://" + text, "http://h" + text):
        try:
            canonical = base_url(candidate)
        except ValueError:
            continue
        assert base_url(canonical) == canonical


@pytest.mark.parametrize(
    ("url", "rest"),
    [
        ("https://email.internal/v1", ""),
        ("https://email.internal/v1/digests", "/digests"),
        ("https://EMAIL.internal:443/v1/digests?x=1", "/digests?x=1"),
        ("https://email.internal/v1?x=1", "?x=1"),
        ("https://email.internal/v10", None),
        ("https://email.internal/", None),
        ("https://email.internal.evil/v1/x", None),
        ("http://email.internal/v1/x", None),
    ],
)
def test_a_url_lies_under_a_base_by_whole_segments(url: str, rest: str | None) -> None:
    assert below("https://email.internal/v1", target_url(url)) == rest

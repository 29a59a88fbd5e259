"""Addresses of targets and the paths that jobs call below them. Pure.

A target's base URL is what was approved. Whatever a job adds must stay below it, whoever reads
it: this server, a proxy, the target's own router. So anything that different readers might
understand differently (dot segments, encoded slashes, backslashes, control characters, double
encoding) is refused rather than repaired.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import unquote

BASE_URL_LIMIT = 1024
PATH_LIMIT = 2048

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#\\]*)(?P<rest>.*)", re.DOTALL)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_CHARS = r"[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2}"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PATH = re.compile(rf"(?:{_CHARS})*")
_QUERY = re.compile(rf"(?:{_CHARS}|\?)*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def base_url(text: str) -> str:
    """The canonical form of a base URL: lower-case host, no default port, no slash at the end.

    Raises ValueError with what is wrong.
    """
    if len(text) > BASE_URL_LIMIT:
        raise ValueError(f"is longer than {BASE_URL_LIMIT} characters")
    origin, rest = split_origin(text)
    if "#" in rest:
        raise ValueError("must have no fragment")
    if "?" in rest:
        raise ValueError("must have no query")
    return origin + check_path(rest).rstrip("/")


def split_origin(text: str) -> tuple[str, str]:
    """Canonical `scheme://host[:port]` of an http(s) URL, and everything behind it."""
    match = _URL.fullmatch(text)
    if match is None or not text.isascii():
        raise ValueError("is not an absolute URL in ASCII")
    scheme = match["scheme"].lower()
    if scheme not in _DEFAULT_PORTS:
        raise ValueError("must begin with http:// or https://")
    authority = match["authority"]
    if "@" in authority:
        raise ValueError("must hold no credentials")
    if authority.startswith("["):
        name, bracket, port = authority[1:].partition("]")
        if not bracket:
            raise ValueError("has no valid host")
        host = f"[{_ipv6(name)}]"
    else:
        name, colon, port = authority.partition(":")
        host, port = _host(name), colon + port
    return scheme + "://" + host + _port(port, scheme), match["rest"]


def _host(name: str) -> str:
    host = name.lower().removesuffix(".")
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("has no valid host")
    if labels[-1].isdigit() or labels[-1].startswith("0x"):
        # Resolvers read `127.1`, `0x7f.1` and `2130706433` as addresses; we read one form only.
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError("has no valid host") from None
    return host


def _ipv6(name: str) -> str:
    try:
        address = ipaddress.IPv6Address(name)
    except ValueError:
        raise ValueError("has no valid host") from None
    if address.scope_id is not None:
        raise ValueError("has no valid host")
    return str(address)


def _port(text: str, scheme: str) -> str:
    if not text:
        return ""
    digits = text.removeprefix(":")
    if not text.startswith(":") or not digits.isdigit() or not 0 < int(digits[:6]) < 65536:
        raise ValueError("has no valid port")
    return "" if int(digits) == _DEFAULT_PORTS[scheme] else f":{int(digits)}"


def check_path(text: str, *, query: bool = False) -> str:
    """A path that may be appended to a base URL (with a query, where that is allowed), as it is.

    Raises ValueError with what is wrong.
    """
    if len(text) > PATH_LIMIT:
        raise ValueError(f"is longer than {PATH_LIMIT} characters")
    if "#" in text:
        raise ValueError("must have no fragment")
    path, mark, rest = text.partition("?")
    if mark and not query:
        raise ValueError("must have no query")
    if path and not path.startswith("/"):
        raise ValueError("must be empty or begin with /")
    if not _PATH.fullmatch(path) or not _QUERY.fullmatch(rest):
        raise ValueError("holds characters that must be percent-encoded")
    if "//" in path:
        raise ValueError("must have no empty segment (//)")
    plain = _decoded(path) if "%" in path else path
    if "%" in text and _CONTROL.search(plain + _decoded(rest)):
        raise ValueError("must hold no encoded control characters")
    if plain.count("/") != path.count("/") or "\\" in plain:
        raise ValueError("must hold no encoded slash or backslash")
    # `..;x` is a dot segment to servers that know path parameters.
    if any(segment.partition(";")[0] in (".", "..") for segment in plain.split("/")):
        raise ValueError("must hold no dot segments")
    return text


def _decoded(text: str) -> str:
    # As far as the most eager reader would decode it.
    for _ in range(4):
        once = unquote(text, errors="replace")
        if once == text:
            break
        text = once
    return text


def below(base: str, url: str) -> str | None:
    """What a canonical URL has behind a base URL, if it lies under it by whole segments."""
    if not url.startswith(base):
        return None
    rest = url[len(base) :]
    return rest if not rest or rest[0] in "/?" else None


def target_url(text: str) -> str:
    """The canonical form of a URL that a job names instead of a target. ValueError if unusable."""
    origin, rest = split_origin(text)
    return origin + check_path(rest, query=True)

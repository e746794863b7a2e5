"""Validation of URLs that a server names: https only, unambiguous, and whose origin they have."""

import re
from typing import Final

from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.network.hosts import Host, HostRefused, read_url

_PLAIN: Final = re.compile(r"[A-Za-z0-9._~:/?@!&*+,=%\[\]-]{1,2048}")
"""Characters allowed in a URL that a person is shown: ASCII without spaces, quotes, backslashes or a
fragment. In a shell it needs quotes: `&`, `!`, `*`, `?` and brackets are allowed."""


def check_https(url: object, what: str) -> str:
    """Return the URL; raises `UpstreamFailed` if it is not https or parsers may disagree about it."""
    if not isinstance(url, str) or not _PLAIN.fullmatch(url):
        raise UpstreamFailed(f"{what} is not a plain https URL")
    try:
        host = read_url(url)
    except HostRefused:
        raise UpstreamFailed(f"{what} is not a plain https URL") from None
    if host.scheme != "https":
        raise UpstreamFailed(f"{what} is not a plain https URL")
    return url


def origin_of(url: str) -> tuple[str, str, int]:
    """Origin (scheme, host, port) of a checked URL."""
    host: Host = read_url(url)
    return host.scheme, host.name, host.port


def base_of(url: str) -> str:
    """The URL without its path."""
    return f"https://{read_url(url).authority}"


def path_of(url: str) -> str:
    """The path of a URL, without a trailing slash."""
    return ("/" + url.partition("://")[2].partition("/")[2].partition("?")[0]).rstrip("/")


def covers_url(resource: str, url: str) -> bool:
    """Whether a resource identifier is this URL or a parent path of it (RFC 8707)."""
    if origin_of(resource) != origin_of(url) or "?" in resource:
        return False
    above, below = path_of(resource), path_of(url)
    return below == above or below.startswith(f"{above}/")

"""URLs that a server names: https and nothing else, one way to read them, and whose they are."""

import re
from typing import Final

from toolkeep.network.hosts import Host, HostRefused, read_url
from toolkeep.sources.mcp.speaking import UpstreamFailed

_PLAIN: Final = re.compile(r"[A-Za-z0-9._~:/?@!&*+,=%\[\]-]{1,2048}")
"""What a URL may hold that a person is shown: ASCII without spaces, quotes, backslashes or a fragment. In a
shell it belongs in quotes: `&`, `!`, `*`, `?` and brackets may stand in it."""


def check_https(url: object, what: str) -> str:
    """The URL; raises `UpstreamFailed` for one that is not https, or that readers may read differently."""
    if not isinstance(url, str) or not _PLAIN.fullmatch(url):
        raise UpstreamFailed(f"{what} is no plain https URL")
    try:
        host = read_url(url)
    except HostRefused:
        raise UpstreamFailed(f"{what} is no plain https URL") from None
    if host.scheme != "https":
        raise UpstreamFailed(f"{what} is no plain https URL")
    return url


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, name and port of a URL that was checked."""
    host: Host = read_url(url)
    return host.scheme, host.name, host.port


def base_of(url: str) -> str:
    """The URL up to its path."""
    return f"https://{read_url(url).authority}"


def path_of(url: str) -> str:
    """The path of a URL, without a slash at its end."""
    return ("/" + url.partition("://")[2].partition("/")[2].partition("?")[0]).rstrip("/")


def holds(resource: str, url: str) -> bool:
    """Whether a resource is this URL, or a folder above it (RFC 8707)."""
    if origin_of(resource) != origin_of(url) or "?" in resource:
        return False
    above, below = path_of(resource), path_of(url)
    return below == above or below.startswith(f"{above}/")

"""`http_fetch` and `web_search`: the text of a URL; the results of a search.

Both run in a sandbox whose only way to the network is the keep's egress proxy, which connects to the granted
host at public addresses, or at private ones that the grant names. So neither a redirect nor a DNS answer
leads elsewhere in the internal network (SSRF).
"""

import codecs
import http
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.tools.html_text import text_of_html
from toolkeep.tools.read_file import TEXT_CHARS

_BYTES: Final = 4 << 20
"""A page for a model is smaller; the worker's memory is bounded too."""
_SECONDS: Final = 20.0
"""Well within the tool's deadline, so that the message is about the server."""
_OURS: Final = frozenset(
    (
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "accept-encoding",
        "te",
        "upgrade",
        "expect",
    )
)
_SAID_CHARS: Final = 500
"""Of an error page and of each search result; both are hostile text."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects from https to http: they would send headers, and so credentials, in the clear."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """The next request."""
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.URLError("it redirects to an address without TLS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def http_fetch(url: str, headers: Mapping[str, str] | None = None) -> str:
    """The text of a URL; the first line says what it is."""
    request = urllib.request.Request(url, headers=_checked(headers or {}))  # noqa: S310 -- policy has read it
    request.add_header("Accept-Encoding", "identity")
    if not request.has_header("User-agent"):
        request.add_header("User-Agent", "toolkeep")
    try:
        with urllib.request.build_opener(_Redirects).open(request, timeout=_SECONDS) as answer:
            return _told(answer, answer.status)
    except urllib.error.HTTPError as error:
        with error:
            said = _told(error, error.code)[:_SAID_CHARS]
        raise ToolFailed(f"{url} answered with {error.code} {error.reason}:\n{said}") from error
    except urllib.error.URLError as error:
        raise ToolFailed(f"{url} cannot be reached: {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ToolFailed(f"{url} cannot be read: {type(error).__name__}") from error


def web_search(query: str, max_results: int = 10, *, endpoint: str = "") -> str:
    """The results of a SearXNG search: title, URL and an excerpt each."""
    if not endpoint:
        raise ToolFailed("No search engine is configured: the operator has to set web_search.url")
    asked = f"{endpoint}?{urllib.parse.urlencode({'q': query, 'format': 'json'})}"
    request = urllib.request.Request(asked, headers={"User-Agent": "toolkeep", "Accept-Encoding": "identity"})  # noqa: S310 -- the operator's own
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 -- the same
            said = json.loads(answer.read(_BYTES))
            found = [_result(one) for one in said["results"][:max_results]]
    except urllib.error.HTTPError as error:
        error.close()
        hint = "; it must allow the format json" if error.code == http.HTTPStatus.FORBIDDEN else ""
        raise ToolFailed(f"The search engine answered with {error.code} {error.reason}{hint}") from error
    except (OSError, http.client.HTTPException) as error:
        raise ToolFailed("The search engine cannot be reached") from error
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ToolFailed("The search engine did not return a list of results") from error
    return "\n\n".join(found) if found else "[nothing was found]"


def _result(one: Mapping[str, object]) -> str:
    title, address, words = (" ".join(str(one.get(key) or "").split()) for key in ("title", "url", "content"))
    return "\n".join(filter(None, (title[:200], address[:500], words[:_SAID_CHARS])))


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        folded = name.lower()
        # Framing headers would let a caller smuggle a second request past the proxy, and `Host` name another
        # site.
        if folded in _OURS or folded.startswith("proxy-"):
            raise ToolFailed(f"the header {name} is not the caller's to set")
        # A line break would inject another header.
        if not name.isascii() or not name.replace("-", "").isalnum() or not value.isprintable():
            raise ToolFailed(f"{name!r} is not a valid header")
    return dict(headers)


def _told(answer: http.client.HTTPResponse | urllib.error.HTTPError, status: int) -> str:
    data = answer.read(_BYTES + 1)
    is_cut, data = len(data) > _BYTES, data[:_BYTES]
    kind = answer.headers.get_content_type()
    address = answer.url or ""
    head = f"[{status} {kind}, {len(data):,} bytes from {address}]"
    if not _is_text(kind):
        return f"{head}\n[not text, so it is left out]"
    text = data.decode(_charset(answer.headers.get_content_charset()), "replace")
    if kind in ("text/html", "application/xhtml+xml"):
        text = text_of_html(text, address)
    if is_cut or len(text) > TEXT_CHARS:
        text = f"{text[:TEXT_CHARS]}\n[cut: this is the beginning]"
    return f"{head}\n{text}"


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind.endswith(("json", "xml", "javascript", "yaml"))


def _charset(named: str | None) -> str:
    try:
        return codecs.lookup(named or "utf-8").name
    except LookupError:
        return "utf-8"

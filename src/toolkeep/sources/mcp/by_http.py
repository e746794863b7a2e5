"""Speaks to an MCP server over streamable HTTP: each request a POST, vetted and dialled like any tool's.

The answer is one message, or a stream of events that holds it. A stream is read to its end, within the bounds
of an answer: nothing is kept open between requests.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.network.budget import Budget
from toolkeep.network.endpoint import Request
from toolkeep.network.errors import NetworkError
from toolkeep.network.fetching import Answer, fetch
from toolkeep.network.reaching import HostReach
from toolkeep.sources.mcp.speaking import Heard, Progress, UpstreamFailed, answered, read
from toolkeep.wire.era import NAMED_BY
from toolkeep.wire.messages import Message, notification, request

_ACCEPTED: Final = "application/json, text/event-stream"
_SESSION: Final = "mcp-session-id"
_SESSION_CHARS: Final = 256
_REQUESTS: Final = 4
_EVENTS: Final = 5_000

Headers = Callable[[], Mapping[str, str]]


class HttpSpeaker:
    """One server by its address."""

    def __init__(self, url: str, reach: HostReach, headers: Headers) -> None:
        """`headers` gives those of the operator, secrets and all, when a request is made."""
        self._url = url
        self._reach = reach
        self._headers = headers
        self._ids = itertools.count(1)
        self._version = ""
        self._session = ""
        self._heard = Heard()
        self._is_closed = False

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        return not self._is_closed

    def take_change(self) -> bool:
        """Whether the server said that its tools are others by now."""
        return self._heard.take_change()

    def settle(self, version: str) -> None:
        """Say the version with each request from here on."""
        self._version = version

    async def request(self, method: str, params: dict[str, Any], on_progress: Progress | None = None) -> Any:
        """The result of a request."""
        number = next(self._ids)
        if on_progress is not None:
            self._heard.listen(number, on_progress)
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}
        try:
            answer = await self._post(method, params, request(number, method, params))
            return self._result(answer, number)
        except UpstreamFailed as failed:
            self._is_closed = self._is_closed or failed.is_over
            raise
        finally:
            self._heard.forget(number)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Tell it something."""
        await self._post(method, params or {}, notification(method, params))

    def attend(self, *, closely: bool) -> None:
        """Nothing of it runs here."""

    async def close(self) -> None:
        """Forget it."""
        self._is_closed = True

    def abandon(self) -> None:
        """Nothing is held."""

    async def _post(self, method: str, params: dict[str, Any], body: bytes) -> Answer:
        headers = {"Accept": _ACCEPTED, "Content-Type": "application/json", **self._headers()}
        if self._version:
            headers["MCP-Protocol-Version"] = self._version
            headers["Mcp-Method"] = method
            named = params.get(NAMED_BY.get(method, ""))
            if isinstance(named, str) and named.isascii() and named.isprintable():
                headers["Mcp-Name"] = named
        if self._session:
            headers["Mcp-Session-Id"] = self._session
        asked = Request(method="POST", url=self._url, headers=tuple(headers.items()), body=body)
        bounds = NetworkBounds(max_requests=_REQUESTS, max_bytes=2 * OUTPUT_CAP_BYTES)
        try:
            answer = await fetch(asked, self._reach, Budget(bounds), OUTPUT_CAP_BYTES)
        except NetworkError as error:
            raise UpstreamFailed(error.reason) from error
        return self._looked_at(answer)

    def _looked_at(self, answer: Answer) -> Answer:
        if answer.status in (401, 403):
            wanted = "it wants credentials, which the operator gives as a secret"
            raise UpstreamFailed(f"it answered with status {answer.status}: {wanted}")
        if answer.status >= 300 and not _is_json(answer):
            raise UpstreamFailed(f"it answered with status {answer.status}")
        given = dict(answer.headers).get(_SESSION, "")
        if given and not self._session:
            if len(given) > _SESSION_CHARS or not given.isascii() or not given.isprintable():
                raise UpstreamFailed("it gave a session id that cannot be used")
            self._session = given
        return answer

    def _result(self, answer: Answer, number: int) -> Any:
        for message in _messages(answer):
            if message.method:
                self._heard.take(message)  # what it asks of us cannot be answered on the same stream
            elif message.id == number:
                self._heard.answer()
                return answered(message)
            else:
                raise UpstreamFailed("it answered a request that nobody made")
        raise UpstreamFailed("it gave no answer")


def _is_json(answer: Answer) -> bool:
    return answer.content_type.partition(";")[0].strip().lower() == "application/json"


def _messages(answer: Answer) -> Iterator[Message]:
    kind = answer.content_type.partition(";")[0].strip().lower()
    if kind == "application/json":
        yield read(answer.body)
    elif kind == "text/event-stream":
        yield from map(read, _events(answer.body))
    else:
        raise UpstreamFailed("it answered with what is neither JSON nor a stream of events")


def _events(body: bytes) -> Iterator[bytes]:
    """The data of each event."""
    data: list[bytes] = []
    count = 0
    for line in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            count += 1
            if count > _EVENTS:
                raise UpstreamFailed(f"it sent more than {_EVENTS} events")
            found, data = b"\n".join(data), []
            if found.strip():
                yield found

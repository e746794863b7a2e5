"""A real identity provider on this machine (`oidc-provider` of npm), and a person at a browser without a screen."""

import html
import json
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPMessage
from http.cookiejar import CookieJar
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin

from tests.mcp_server.environments import node_with_packages

HERE = Path(__file__).resolve().parent / "node"


class RealProvider:
    """The provider as a process, and what it did."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        assert process.stdout is not None
        first = json.loads(next(line for line in process.stdout if line.startswith("{")))
        self.url: str = first["issuer"]
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, args=(process.stdout,))
        self._reader.start()

    def _read(self, lines: IO[str]) -> None:
        # Its warnings stand between them.
        self.events.extend(json.loads(line) for line in lines if line.startswith("{"))

    def said(self, event: str) -> list[dict[str, Any]]:
        """What it said until now of one kind of event."""
        self.later(0)
        return [one for one in self.events if one["event"] == event]

    def later(self, seconds: int) -> None:
        """Let time pass there; what it said before has been read then."""
        said = len(self.events)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        until(lambda: {"event": "later"} in self.events[said:])

    def end(self) -> None:
        self._process.terminate()
        self._reader.join(30)
        self._process.wait(30)


@contextmanager
def real_provider(resource: str, **settings: Any) -> Iterator[RealProvider]:
    """Start a provider that issues tokens for a resource."""
    node, packages = node_with_packages(HERE, "node-provider")
    words = [
        str(node),
        str(HERE / "provider.mjs"),
        str(packages),
        json.dumps({"resource": resource, **settings}),
    ]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        provider = RealProvider(process)
        try:
            yield provider
        finally:
            provider.end()


class Person:
    """Somebody at a browser without a screen, who fills in the forms of the provider."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_away = False
        self.cookies = CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(self.cookies), _NoRedirects()
        )

    def open(self, url: str) -> str:
        """Open a page of the provider, and answer its forms: the address that it leads to in the end."""
        origin = url[: url.index("/", len("http://"))]
        fields: dict[str, str] | None = None
        while url.startswith(f"{origin}/"):
            place, body = self.ask(url, fields)
            url, fields = (urljoin(url, place), None) if place else self._answer(url, body)
        return url

    def log_out(self, provider: str) -> None:
        """Sign out at the provider."""
        _, body = self.ask(f"{provider}/session/end")
        url, fields = self._answer(provider, body)
        self.ask(url, {**fields, "logout": "yes"})

    def _answer(self, url: str, body: str) -> tuple[str, dict[str, str]]:
        form = re.search(r'action="([^"]+)" method="post"|method="post" action="([^"]+)"', body)
        assert form, body[:2000]
        hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', body))
        typed = {"login": self.name, "password": "x"} if 'name="login"' in body else {}
        return urljoin(url, html.unescape(form[1] or form[2])), {**hidden, **typed}

    def ask(
        self, url: str, fields: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> tuple[str, str]:
        """Where an answer leads, if it does, and its body."""
        data = None if fields is None else urlencode(fields).encode()
        try:
            answer = self._opener.open(urllib.request.Request(url, data, headers or {}))  # noqa: S310 -- on this machine
        except HTTPError as error:
            if error.code >= 400:
                raise
            answer = error
        with answer:
            return answer.headers.get("Location", ""), answer.read().decode()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """Say where it leads instead."""


def until(is_so: Callable[[], object]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)

"""What do access tokens of identity providers cost, and whom does a bad provider delay? Prints tables.

Requests go to the app of a server in this process, one after the other, the lanes in turn: processor time, so
that other work on the machine counts little. A provider in a process of its own is slow, away or hostile
while requests with tokens that need nothing of it are timed. See bench/README.md.
"""

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from measures.home import empty_home
from measures.statistics import median, percentile
from tables import print_notes, print_table
from toolkeep import open_keep
from toolkeep.config.identity_settings import ClaimGrant, IdentitySettings, Issuer
from toolkeep.server import MemoryTokens, Tokens, defer_to_inbox, make_app

ISSUER, AUDIENCE = "http://127.0.0.1:{port}/{name}", "https://keep.example.org/mcp"
OWN = "own token"
GRANTS = (ClaimGrant(claims={"client_id": "nightly"}, agent="operator", scopes=("admin",)),)
KEYS: dict[str, Callable[[], Key]] = {
    "RS256": partial(RSAKey.generate_key, 2048, {"kid": "one"}),
    "PS256": partial(RSAKey.generate_key, 2048, {"kid": "one"}),
    "RS512": partial(RSAKey.generate_key, 4096, {"kid": "one"}),
    "ES256": partial(ECKey.generate_key, "P-256", {"kid": "one"}),
    "ES384": partial(ECKey.generate_key, "P-384", {"kid": "one"}),
    "ES512": partial(ECKey.generate_key, "P-521", {"kid": "one"}),
    "Ed25519": partial(OKPKey.generate_key, "Ed25519", {"kid": "one"}),
}
TROUBLES = {
    "away": "refuses connections",
    "silent": "takes connections and says nothing",
    "dripping": "sends a byte each 50 ms",
    "endless": "sends a body without end, as fast as it can",
    "many keys": "sends the hundred keys that are taken at most, in 215 KB",
    "redirecting": "redirects to itself",
}
WAITING = 256
"""Requests with keys that are not known, at once."""
Ask = Callable[[str], Coroutine[Any, Any, int]]


class Signer:
    """An issuer of tokens of one algorithm."""

    def __init__(self, algorithm: str, port: int) -> None:
        self.algorithm = algorithm
        self.issuer = ISSUER.format(port=port, name=algorithm)
        self._key = KEYS[algorithm]()

    def key_set(self) -> dict[str, Any]:
        return {"keys": [{**self._key.as_dict(private=False), "use": "sig"}]}

    def token(self, number: int, key_id: str = "one") -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "nightly",
            "client_id": "nightly",
            "jti": str(number),
            "iat": now,
            "exp": now + 3600,
            "scope": "openid profile email",
        }
        head = {"alg": self.algorithm, "typ": "at+jwt", "kid": key_id}
        return jwt.encode(head, claims, self._key, algorithms=[self.algorithm])

    def settings(self, port: int, path: str) -> Issuer:
        return Issuer(
            issuer=self.issuer,
            audience=AUDIENCE,
            algorithm=self.algorithm,
            grants=GRANTS,
            keys=f"http://127.0.0.1:{port}/{path}",
            host=f"127.0.0.1:{port}",
        )


def asker(app: Any) -> Ask:
    """Sends `GET /v1/token` with a token to the app; the status."""
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/token",
        "query_string": b"",
        "scheme": "http",
    }

    async def ask(token: str) -> int:
        status = 0

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())]
        await app({**scope, "headers": headers}, receive, send)
        return status

    return ask


@contextmanager
def provider(trouble: str, pages: dict[str, Any]) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A provider in its own process, which serves the pages, and is in trouble below `/bad`."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    words = [sys.executable, __file__, "--provider", trouble, str(port)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        yield port, process
    finally:
        process.kill()
        process.communicate()


def serve_pages(process: subprocess.Popen[bytes], pages: dict[str, Any]) -> None:
    """Give the provider its pages, and wait until it listens."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(pages).encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()


async def batch(ask: Ask, tokens: list[str], wanted: int = 200) -> float:
    """Microseconds of processor time of a request."""
    began = time.process_time()
    for token in tokens:
        if await ask(token) != wanted:
            raise SystemExit("a request was not answered as it should be")
    return (time.process_time() - began) / len(tokens) * 1e6


async def costs(rounds: int, count: int) -> dict[str, tuple[list[float], list[float]]]:
    """For each kind of token: what a request takes with one that was verified before, and with a new one."""
    with provider("none", {}) as (port, process):
        signers = [Signer(name, port) for name in KEYS]
        serve_pages(process, {f"/{one.algorithm}": one.key_set() for one in signers})
        tokens = Tokens(MemoryTokens())
        identity = IdentitySettings(issuers=tuple(one.settings(port, one.algorithm) for one in signers))
        app = make_app(open_keep(approver=defer_to_inbox), tokens, identity=identity)
        ask = asker(app)
        made = tokens.make("bench", ("admin",), agent="operator").text
        repeated = {OWN: made, **{one.algorithm: one.token(0) for one in signers}}
        found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in repeated}
        for token in repeated.values():
            await batch(ask, [token] * count)
        names = list(repeated)
        for number in range(rounds):
            for place in range(len(names)):
                name = names[(place + number) % len(names)]
                found[name][0].append(await batch(ask, [repeated[name]] * count))
            for one in signers:
                new = [one.token(1 + number * count + other) for other in range(count // 5)]
                found[one.algorithm][1].append(await batch(ask, new))
        await app.shutdown()
        return found


async def troubled(trouble: str, seconds: float) -> dict[str, Any]:
    """How long requests take beside many that wait for a provider in trouble, and without those."""
    with provider(trouble, {}) as (port, process):
        good, bad = Signer("RS256", port), Signer("ES256", port)
        serve_pages(process, {"/RS256": good.key_set()})
        tokens = Tokens(MemoryTokens())
        bad_port = free_port() if trouble == "away" else port
        issuers = (good.settings(port, "RS256"), bad.settings(bad_port, "bad"))
        app = make_app(open_keep(approver=defer_to_inbox), tokens, identity=IdentitySettings(issuers=issuers))
        ask = asker(app)
        made = tokens.make("bench", ("admin",), agent="operator").text
        theirs = good.token(0)
        await batch(ask, [made, theirs])
        quiet = await latencies(ask, made, theirs, seconds)
        unknown = [bad.token(0, f"unknown {one}") for one in range(WAITING)]
        waiting = asyncio.create_task(ask_all(ask, unknown))
        beside = await latencies(ask, made, theirs, seconds)
        await waiting
        await app.shutdown()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        asked = int(process.stdout.readline())
        return {"quiet": quiet, "beside": beside, "asked": asked}


async def ask_all(ask: Ask, tokens: list[str]) -> None:
    """Requests that come one after the other, and wait together; all of them are refused."""
    asked = []
    for token in tokens:
        asked.append(asyncio.create_task(ask(token)))
        await asyncio.sleep(0.002)
    if set(await asyncio.gather(*asked)) != {401}:
        raise SystemExit("a token with an unknown key was not refused")


async def latencies(ask: Ask, own: str, theirs: str, seconds: float) -> list[float]:
    """Microseconds that requests take, of two callers in turn, each with a pause before."""
    found = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for token in (own, theirs):
            began = time.perf_counter()
            if await ask(token) != 200:
                raise SystemExit("a request was not answered as it should be")
            found.append((time.perf_counter() - began) * 1e6)
            await asyncio.sleep(0.001)
    return found


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def act_as_provider(trouble: str, port: int) -> None:
    """Serve the pages of the first line on stdin; on the second, say how often `/bad` was asked for."""
    loop = asyncio.get_running_loop()
    pages = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            if path in pages:
                body = json.dumps(pages[path]).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
                return
            asked += 1
            await be_bad(trouble, port, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with server:
        print("listening", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        print(asked, flush=True)


async def be_bad(trouble: str, port: int, writer: asyncio.StreamWriter) -> None:
    """Answer as badly as the trouble says."""
    if trouble == "silent":
        await asyncio.sleep(3600)
    if trouble == "redirecting":
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/bad\r\n\r\n" % port)
        await writer.drain()
        return
    if trouble == "many keys":
        body = json.dumps({"keys": [hostile_key(number) for number in range(100)]}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while trouble in ("dripping", "endless"):
        piece = b" " if trouble == "dripping" else b" " * 65_536
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
        if trouble == "dripping":
            await asyncio.sleep(0.05)


def hostile_key(number: int) -> dict[str, Any]:
    """A key that costs as much as one can: a point of a curve to check, and a certificate to skip."""
    made = ECKey.generate_key("P-256", {"kid": str(number)}).as_dict(private=False)
    return {**made, "use": "sig", "x5c": ["A" * 2000]}


def print_costs(found: dict[str, tuple[list[float], list[float]]]) -> None:
    own = found[OWN][0]
    rows = []
    for name, (again, new) in found.items():
        more = median([one - base for one, base in zip(again, own, strict=True)])
        first = f"{median([one - base for one, base in zip(new, own, strict=True)]):.0f}" if new else ""
        rows.append([name, f"{median(again):.1f}", f"{more:+.1f}" if new else "", first])
    print_table(
        "A request (GET /v1/token), µs of processor time",
        ["token", "verified before", "over an own one", "a first one, over an own one"],
        rows,
    )


def print_troubles(found: dict[str, dict[str, Any]]) -> None:
    rows = []
    for trouble, said in found.items():
        quiet, beside = said["quiet"], said["beside"]
        rows.append([
            trouble,
            *(f"{percentile(quiet, part):.0f} / {percentile(beside, part):.0f}" for part in (0.5, 0.99)),
            f"{max(beside) / 1000:.1f}",
            str(said["asked"]),
        ])  # fmt: skip
    print_table(
        f"Requests that need nothing of a provider, beside {WAITING} that wait for it, µs",
        ["the provider is", "p50 without / beside", "p99 without / beside", "max beside, ms", "times asked"],
        rows,
    )
    print_notes([f"{name}: it {what}" for name, what in TROUBLES.items()])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--provider", nargs=2, metavar=("TROUBLE", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.provider:
        asyncio.run(act_as_provider(options.provider[0], int(options.provider[1])))
        return 0
    with empty_home():
        rounds, count, seconds = (5, 100, 1.0) if options.quick else (60, 200, 5.0)
        print_costs(asyncio.run(costs(rounds, count)))
        print_troubles({trouble: asyncio.run(troubled(trouble, seconds)) for trouble in TROUBLES})
    return 0


if __name__ == "__main__":
    sys.exit(main())

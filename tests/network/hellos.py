"""ClientHellos as OpenSSL writes them, and what a hostile client makes of them."""

import contextlib
import ssl

RECORD = 5


def client_hello(name: str | None) -> bytes:
    """The first record of a client that asks for a server."""
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    if name is None:
        context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=_sayable(name))
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = out.read()
    # OpenSSL names no address; a hostile client does.
    return hello.replace(_STAND_IN, name.encode()) if name and _sayable(name) != name else hello


_STAND_IN = b"not.an.addre"


def _sayable(name: str | None) -> str | None:
    if name and name.replace(".", "").isdigit():
        return _STAND_IN.decode().ljust(len(name), "s")[: len(name)]
    return name


def with_extension(hello: bytes, kind: int, content: bytes) -> bytes:
    """The hello with one more extension at its end."""
    extra = kind.to_bytes(2, "big") + len(content).to_bytes(2, "big") + content
    body = hello[RECORD + 4 :]
    at = 34
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2], "big")
    at += 1 + body[at]
    length = int.from_bytes(body[at : at + 2], "big") + len(extra)
    body = body[:at] + length.to_bytes(2, "big") + body[at + 2 :] + extra
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return hello[:3] + len(message).to_bytes(2, "big") + message


def fragmented(hello: bytes, size: int) -> bytes:
    """The same hello in records of so many bytes."""
    message = hello[RECORD:]
    parts = (message[at : at + size] for at in range(0, len(message), size))
    return b"".join(hello[:3] + len(part).to_bytes(2, "big") + part for part in parts)

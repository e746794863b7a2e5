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
    # OpenSSL says no address as a name, which a hostile client does: it says a name of the same length.
    is_address = name is not None and name.replace(".", "").isdigit()
    said = "x" * len(name) if name and is_address else name
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=said)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = out.read()
    return hello.replace(said.encode(), name.encode()) if name and said and is_address else hello


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

"""Forms with files: read back by another parser as they were written, and nothing that breaks out of its part."""

import base64
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.network.http_endpoint import Endpoint
from toolkeep.network.multipart import Part, Written, clean_file_name, write_multipart
from toolkeep.network.parameter_styles import ArgumentUnfit

FILE = Part(kind="file")


def content(raw: bytes, **more: str) -> dict[str, str]:
    return {"content": base64.b64encode(raw).decode(), **more}


def read(written: Written) -> list[tuple[str, str | None, str, bytes]]:
    """Name, file name, type and bytes of each part, as the standard library reads them."""
    head = f"Content-Type: {written.content_type}\r\n\r\n".encode()
    message: Message = BytesParser(policy=HTTP).parsebytes(head + written.body)
    assert message.is_multipart() or written.body.count(b"\r\n") == 1, written.body
    parts = message.get_payload() if message.is_multipart() else []
    return [
        (
            str(part.get_param("name", header="content-disposition")),  # type: ignore[union-attr]
            part.get_filename(),  # type: ignore[union-attr]
            part.get_content_type(),  # type: ignore[union-attr]
            part.get_payload(decode=True),  # type: ignore[misc, union-attr]
        )
        for part in parts
    ]


def test_each_field_is_a_part() -> None:
    fields = {"a": "x", "n": 7, "yes": True, "none": None, "list": ["p", "q"], "deep": {"k": [1]}, "f": content(b"\x00\r\n--", file_name="a.bin")}  # fmt: skip
    assert read(write_multipart(fields, {"f": FILE})) == [
        ("a", None, "text/plain", b"x"), ("n", None, "text/plain", b"7"), ("yes", None, "text/plain", b"true"),
        ("list", None, "text/plain", b"p"), ("list", None, "text/plain", b"q"), ("deep", None, "application/json", b'{"k":[1]}'),
        ("f", "a.bin", "application/octet-stream", b"\x00\r\n--"),
    ]  # fmt: skip


def test_types_that_the_document_states_are_said() -> None:
    parts = {"f": Part(kind="file", content_type="image/png"), "j": Part(kind="json", whole=True), "t": Part(content_type="text/csv")}  # fmt: skip
    fields = {"f": [content(b"1"), {"text": "zwö"}], "j": [1, {"a": 2}], "t": "a,b"}
    assert read(write_multipart(fields, parts)) == [
        ("f", "file", "image/png", b"1"), ("f", "file", "image/png", "zwö".encode()), ("j", None, "application/json", b'[1,{"a":2}]'),
        ("t", None, "text/csv", b"a,b"),
    ]  # fmt: skip


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
HOSTILE = TEXTS | st.sampled_from(
    ['x"; filename="evil.php', "a\r\nContent-Type: text/html\r\n\r\n<b>", "--\r\n--", 'a"\r\n\r\n', "\r\n--boundary--\r\n", "\0\x7f"]
)  # fmt: skip


@given(fields=st.dictionaries(HOSTILE, HOSTILE, max_size=4), files=st.dictionaries(HOSTILE, st.tuples(st.binary(max_size=40), HOSTILE), max_size=2))  # fmt: skip
def test_no_field_and_no_file_adds_a_part_or_a_header(
    fields: dict[str, str], files: dict[str, tuple[bytes, str]]
) -> None:
    given_files: dict[str, Any] = {f"{n}!": content(raw, file_name=name) for n, (raw, name) in files.items()}
    written = write_multipart({**fields, **given_files}, dict.fromkeys(given_files, FILE))
    boundary = written.content_type.partition("boundary=")[2].encode()
    pieces = written.body.split(b"--" + boundary)
    assert len(pieces) == len(fields) + len(given_files) + 2
    assert (pieces[0], pieces[-1]) == (b"", b"--\r\n")
    for piece in pieces[1:-1]:
        head, _, body = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0].startswith(b'Content-Disposition: form-data; name="')
        assert lines[0].count(b'"') == (4 if b'; filename="' in lines[0] else 2)
        assert not any(byte < 32 or byte == 127 for line in lines for byte in line)
        assert len(lines) <= 2
        assert body.endswith(b"\r\n")
    bodies = [piece.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for piece in pieces[1:-1]]
    assert bodies == [*(text.encode() for text in fields.values()), *(raw for raw, _ in files.values())]


def test_a_boundary_that_a_field_holds_is_not_taken() -> None:
    with patch("secrets.token_hex", side_effect=["a" * 32, "b" * 32]):
        written = write_multipart({"x": f"\r\n--{'a' * 32}--\r\n"}, {})
    assert written.content_type == f"multipart/form-data; boundary={'b' * 32}"


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("a.png", "a.png"), ("../../etc/passwd", "passwd"), ("C:\\x\\y.exe", "y.exe"), ("", "file"), ("..", "file"), (".", "file"), (None, "file"), (7, "file"),
        ("a\r\nb\0.txt", "a__b_.txt"), ('a"; filename="b', "a__ filename=_b"), (".htaccess", "htaccess"), ("übung (1).pdf", "übung (1).pdf"),
        ("x" * 300, "x" * 128), ("a/", "file"), ("\u202egnp.exe", "_gnp.exe"), ("con\u2028x", "con_x"),
    ],
)  # fmt: skip
def test_a_name_of_a_file_is_a_name_and_nothing_else(name: Any, cleaned: str) -> None:
    assert clean_file_name(name) == cleaned


@pytest.mark.parametrize(
    "value",
    [
        "text", None, {}, {"content": "AA==", "text": "b"}, {"content": 5}, {"text": ["a"]}, {"content": "no base64!"}, {"content": "AA=="[:3]},
        {"content": "AA\n=="}, {"content": "", "more": 1}, ["x"], {"text": "\ud800"}, {"file_name": "a"},
    ],
)  # fmt: skip
def test_what_is_no_file_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentUnfit):
        write_multipart({"f": value if value is not None else {"content": None}}, {"f": FILE})


def test_what_is_no_form_is_refused() -> None:
    refused: tuple[Any, ...] = ([], "x", None)
    for bad in refused:
        with pytest.raises(ArgumentUnfit):
            write_multipart(bad, {})
    with pytest.raises(ArgumentUnfit):
        write_multipart({"t": {"deep": 1}}, {"t": Part(content_type="text/csv")})
    with pytest.raises(ArgumentUnfit):
        write_multipart({"t": "\ud800"}, {})


def test_a_body_may_be_a_file() -> None:
    target = {"url": "https://a.example/", "method": "PUT", "body": {"argument": "body", "content_type": "image/png", "file": True}}  # fmt: skip
    request = Endpoint.read(target).request({"body": content(b"\x89PNG")}, lambda _: "")
    assert (request.body, request.content_type) == (b"\x89PNG", "image/png")
    with pytest.raises(ArgumentUnfit):
        Endpoint.read(target).request({"body": "x"}, lambda _: "")

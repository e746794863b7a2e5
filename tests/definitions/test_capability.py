"""Capabilities in their text form."""

import pytest

from toolkeep.definitions.capability import Capability


@pytest.mark.spec("DEF-1")
@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("fs.read:./docs", Capability("fs.read", "./docs")),
        ("fs.write", Capability("fs.write")),
        ("net.read:*", Capability("net.read", "*")),
        ("net.write:example.org:8443", Capability("net.write", "example.org:8443")),
        ("db.read:orders", Capability("db.read", "orders")),
        ("db.write:orders", Capability("db.write", "orders")),
        ("process.spawn:git", Capability("process.spawn", "git")),
    ],
)
def test_a_capability_is_read_from_its_text_and_written_back(text: str, capability: Capability) -> None:
    assert Capability.read(text) == capability
    assert str(capability) == text


def test_a_capability_is_read_from_itself() -> None:
    capability = Capability("fs.read", "./docs")
    assert Capability.read(capability) is capability


def test_an_empty_scope_is_written_without_its_colon() -> None:
    assert str(Capability.read("fs.read:")) == "fs.read"


@pytest.mark.parametrize("text", ["fs", "", ":./docs", "FS.read:x", "fs.delete:x", " fs.read:x"])
def test_an_unknown_kind_is_refused_with_those_that_exist(text: str) -> None:
    kinds = "fs.read, fs.write, net.read, net.write, db.read, db.write, process.spawn"
    with pytest.raises(ValueError, match=kinds.replace(".", r"\.")):
        Capability.read(text)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="not int"):
        Capability.read(5)  # type: ignore[arg-type]

"""Keys of servers and workers: made once, private, and read only as they were written."""

from pathlib import Path

import pytest

from tests.fleet.running import new_key
from toolkeep.errors import StateUnusable
from toolkeep.fleet.identity import PublicKey, load_key


def test_a_key_is_made_once_and_nobody_else_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "fleet" / "worker.key"
    made = load_key(path)
    assert load_key(path).public == made.public
    assert path.stat().st_mode & 0o077 == 0
    assert path.read_bytes().hex() not in repr(made)
    path.chmod(0o640)
    with pytest.raises(StateUnusable):
        load_key(path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(StateUnusable):
        load_key(path)


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:AAAA", "rsa:AAAA", "ed25519:" + "A" * 44 + "!"])
def test_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        PublicKey.read(text)


def test_a_key_knows_its_own_signatures_alone() -> None:
    one, other = new_key(), new_key()
    signature = one.sign(b"message")
    assert PublicKey.read(one.public.text).has_signed(signature, b"message")
    assert not one.public.has_signed(signature, b"another")
    assert not other.public.has_signed(signature, b"message")
    assert not one.public.has_signed(b"", b"message")

"""Signed notes and checkpoints, with the examples of C2SP."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.audit.checkpoint import Checkpoint, open_checkpoint, parse_size
from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.signed_note import Algorithm, Note, Signer, VerifierKey, sign_note

EXAMPLE_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
EXAMPLE = (
    "This is an example message.\n\n— example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)
COSIGNED = """example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==
"""
LOG = Signer(name="example.com/log", algorithm=Algorithm.ED25519, seed=bytes(range(32)))
OTHER = Signer(name="example.com/log", algorithm=Algorithm.ED25519, seed=bytes(range(1, 33)))
WITNESS = Signer(name="example.com/witness", algorithm=Algorithm.COSIGNATURE, seed=bytes(range(2, 34)))
CHECKPOINT = Checkpoint(origin="example.com/log", size=7, root=bytes(32))


def test_the_example_of_signed_note_verifies() -> None:
    key = VerifierKey.parse(EXAMPLE_KEY)
    assert Note.parse(EXAMPLE).signers([key]) == (key,)
    assert str(key) == EXAMPLE_KEY
    assert str(Note.parse(EXAMPLE)) == EXAMPLE


def test_the_example_of_a_cosigned_checkpoint_is_read_as_the_standard_says() -> None:
    note = Note.parse(COSIGNED)
    checkpoint = Checkpoint.parse(note.text)
    assert (checkpoint.origin, checkpoint.size) == ("example.com/behind-the-sofa", 20852163)
    assert [signature.name for signature in note.signatures] == [checkpoint.origin, "witness.example.com/w1"]
    assert note.signatures[1].timestamp == 1679315147
    assert str(note) == COSIGNED
    assert checkpoint.text == note.text


def test_a_signed_checkpoint_is_opened_with_its_public_key() -> None:
    written = str(CHECKPOINT.sign(LOG))
    assert open_checkpoint(written, [VerifierKey.parse(str(LOG.verifier))]) == CHECKPOINT


def test_a_private_key_survives_its_text_form() -> None:
    assert Signer.parse(LOG.to_text()).verifier == LOG.verifier
    assert "seed" not in repr(LOG)


def test_another_key_of_the_same_name_does_not_open_a_checkpoint() -> None:
    with pytest.raises(NoteInvalid, match="no known key"):
        open_checkpoint(str(CHECKPOINT.sign(OTHER)), [LOG.verifier])


def test_a_key_of_another_log_does_not_open_a_checkpoint() -> None:
    stranger = Signer(name="example.com/stranger", algorithm=Algorithm.ED25519, seed=bytes(32))
    with pytest.raises(NoteInvalid, match="no known key"):
        open_checkpoint(str(CHECKPOINT.sign(stranger)), [stranger.verifier])


def test_signatures_of_unknown_keys_are_passed_over() -> None:
    note = CHECKPOINT.sign(OTHER, LOG)
    assert note.signers([LOG.verifier]) == (LOG.verifier,)


def test_one_wrong_signature_of_a_known_key_condemns_the_note() -> None:
    wrong = Checkpoint(origin=CHECKPOINT.origin, size=8, root=bytes(32)).sign(OTHER).signatures[0]
    note = Note(text=CHECKPOINT.text, signatures=(LOG.sign(CHECKPOINT.text), wrong))
    with pytest.raises(NoteInvalid, match="is wrong"):
        note.signers([LOG.verifier, OTHER.verifier])


def test_a_cosignature_vouches_for_text_and_time() -> None:
    cosignature = WITNESS.sign(CHECKPOINT.text, timestamp=1679315147)
    assert cosignature.timestamp == 1679315147
    assert WITNESS.verifier.has_signed(CHECKPOINT.text, cosignature)
    later = type(cosignature)(
        name=cosignature.name,
        key_id=cosignature.key_id,
        signature=(1679315148).to_bytes(8, "big") + cosignature.signature[8:],
    )
    assert not WITNESS.verifier.has_signed(CHECKPOINT.text, later)
    assert not WITNESS.verifier.has_signed(CHECKPOINT.text + "x", cosignature)


def test_a_plain_signature_of_the_witness_key_is_no_cosignature() -> None:
    plain = Signer(name=WITNESS.name, algorithm=Algorithm.ED25519, seed=WITNESS.seed)
    assert plain.verifier.key_id != WITNESS.verifier.key_id
    with pytest.raises(NoteInvalid, match="no known key"):
        sign_note(CHECKPOINT.text, plain).signers([WITNESS.verifier])


def test_base64_has_one_spelling() -> None:
    """The last letter before the padding has two bits that count for nothing."""
    other = EXAMPLE.replace("QM=", "QN=")
    assert other != EXAMPLE
    with pytest.raises(NoteInvalid, match="not base64"):
        Note.parse(other)


@given(st.data())
def test_a_note_with_any_byte_changed_is_refused(data: st.DataObject) -> None:
    written = bytearray(str(CHECKPOINT.sign(LOG)).encode())
    place = data.draw(st.integers(0, len(written) - 1))
    written[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(NoteInvalid):
        open_checkpoint(written.decode(errors="replace"), [LOG.verifier])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no signature\n",
        "text\n\n",
        "text\n\n- name AAAAAAAA\n",
        "text\n\n— name with spaces AAAAAAAA\n",
        "text\n\n— na+me AAAAAAAA\n",
        "text\n\n— name AAAA\n",
        "text\n\n— name AAAAAAAA",
        "te\txt\n\n— name AAAAAAAA\n",
        "text\n\n— name AAAAAAA\n",
        "text\n\n— name AAAAAAAA\n— name AAAAAAAA\n",
        "x" * 70_000 + "\n\n— name AAAAAAAA\n",
    ],
)
def test_what_is_no_note_is_refused(text: str) -> None:
    with pytest.raises(NoteInvalid):
        Note.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "o\n7\n",
        "o\n07\n{root}\n",
        "o\n-1\n{root}\n",
        "\n7\n{root}\n",
        "o\n7\nAAAA\n",
        "o\n7\n{root}\nmore\n",
        "o\n٧\n{root}\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(NoteInvalid):
        Checkpoint.parse(text.replace("{root}", "A" * 43 + "="))


def test_sizes_have_one_spelling() -> None:
    assert parse_size("0") == 0
    for wrong in ("", "00", "+1", "1_0", " 1", "1" * 20):
        with pytest.raises(NoteInvalid):
            parse_size(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        EXAMPLE_KEY.replace("530d903a", "530d903b"),
        EXAMPLE_KEY.replace("foo", "fop"),
        EXAMPLE_KEY.replace("+Aeky", "+Beky"),
        EXAMPLE_KEY[:-4],
    ],
)
def test_what_is_no_verifier_key_is_refused(text: str) -> None:
    with pytest.raises(NoteInvalid):
        VerifierKey.parse(text)

"""The name that was probably meant."""

import pytest

from toolkeep.text.nearest import is_slip, nearest_name

NAMES = ["command", "working_directory", "timeout_seconds", "create_directories", "start_x", "max_length"]


@pytest.mark.spec("TLS-1")
@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("working_dir", "working_directory"),
        ("workingDir", "working_directory"),
        ("timeout_secs", "timeout_seconds"),
        ("create_dirs", "create_directories"),
        ("max_len", "max_length"),
    ],
)
def test_an_abbreviation_is_surely_the_name(wanted: str, meant: str) -> None:
    assert nearest_name(wanted, NAMES) == meant
    assert is_slip(wanted, meant)


@pytest.mark.parametrize(
    ("wanted", "name"),
    [("start_y", "start_x"), ("min", "minutes"), ("working", "working_directory"), ("c", "command")],
)
def test_what_may_be_another_word_is_no_slip(wanted: str, name: str) -> None:
    assert not is_slip(wanted, name)


def test_an_abbreviation_of_two_names_means_neither() -> None:
    assert nearest_name("max_len", ["max_length", "max_lengths_seen", "max_lens_width"]) == "max_length"
    assert nearest_name("start_pos", ["start_position", "start_possible"]) is None

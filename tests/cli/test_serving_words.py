"""What `toolkeep serve` tells whoever started it."""

import pytest

from toolkeep.cli.serve import _link_command


@pytest.mark.parametrize(
    ("public", "command"),
    [
        ("http://127.0.0.1:8765", "toolkeep token link"),
        ("http://127.0.0.1:9000", "toolkeep token link --address http://127.0.0.1:9000"),
        ("https://keep.example.org", "toolkeep token link --address https://keep.example.org"),
    ],
)
def test_the_link_is_made_for_where_the_server_is(public: str, command: str) -> None:
    assert _link_command(public) == command

"""A process that serves leaves alone what stands, and looks seldom for garbage."""

import gc
from collections.abc import Iterator

import pytest

from toolkeep.mcp_server.serve_http import raise_gc_threshold


@pytest.fixture
def _collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("_collector")
def test_what_stands_is_left_alone_and_the_collector_still_works() -> None:
    raise_gc_threshold()
    assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_threshold()[0] == 10_000

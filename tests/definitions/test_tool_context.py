"""What a running tool may ask of its call."""

import dataclasses

import pytest

from toolkeep import Code, ToolContext
from toolkeep.definitions.tool_context import Cancelled
from toolkeep.errors import SecretUnavailable


def test_progress_reaches_whoever_listens() -> None:
    heard: list[tuple[float, float | None, str]] = []
    context = ToolContext(on_progress=lambda done, total, message: heard.append((done, total, message)))
    context.progress(1)
    context.progress(2, 4, "half")
    assert heard == [(1, None, ""), (2, 4, "half")]


def test_progress_without_a_listener_is_no_error() -> None:
    ToolContext().progress(1, 2, "quiet")


def test_a_cancelled_call_is_noticed() -> None:
    with pytest.raises(Cancelled):
        ToolContext(is_cancelled=lambda: True).check_cancelled()


def test_a_call_that_goes_on_is_not_stopped() -> None:
    ToolContext().check_cancelled()


def test_a_secret_that_was_given_is_found() -> None:
    assert ToolContext(secrets={"token": "s3cret"}).secret("token") == "s3cret"


def test_a_secret_that_nobody_gave_is_unavailable() -> None:
    with pytest.raises(SecretUnavailable) as caught:
        ToolContext(secrets={"token": "s3cret"}).secret("password")
    assert (caught.value.code, caught.value.name) == (Code.SECRET_UNAVAILABLE, "password")
    assert caught.value.__cause__ is None


@pytest.mark.spec("VAL-6")
def test_secrets_are_not_shown_in_the_text_of_a_context() -> None:
    context = ToolContext(agent="a", secrets={"token": "s3cret"})
    assert repr(context) == "ToolContext(agent='a', correlation_id='', conversation_id='', session_id='')"


def test_a_context_cannot_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ToolContext().agent = "other"  # type: ignore[misc]

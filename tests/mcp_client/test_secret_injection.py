"""Secrets in headers: filled in, remembered, and never in an error."""

import pytest

from toolkeep.mcp_client.secret_injection import SecretInjection

pytestmark = pytest.mark.spec("MCP-2", "AUD-5")


def test_headers_are_filled_in_and_their_secrets_remembered() -> None:
    filling = SecretInjection({"key": "s3cr3t", "other": "unused"}.__getitem__)
    given = filling.headers({"Authorization": "Bearer {secret:key}", "X-Who": "ada", "X-None": ""})
    assert given == {"Authorization": "Bearer s3cr3t", "X-Who": "ada", "X-None": ""}
    assert filling.given == ("s3cr3t",)


@pytest.mark.parametrize("secret", ["s3cr3t\nX-More: yes", "s3cr3t ", "s3cr3t\x00", "s3cr3tä", "s3cr3t\r"])
def test_a_secret_that_no_header_can_hold_is_refused_without_its_words(secret: str) -> None:
    with pytest.raises(
        ValueError, match="its header Authorization would have a value that headers cannot have"
    ) as caught:
        SecretInjection({"key": secret}.__getitem__).headers({"Authorization": "Bearer {secret:key}"})
    assert "s3cr3t" not in str(caught.value)

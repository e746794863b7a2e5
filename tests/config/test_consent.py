"""Whom an identity provider names, and what they get, is told before a file with it is accepted."""

from pathlib import Path

import pytest

from tests.config.projects import configure, project_file

pytestmark = pytest.mark.spec("IDN-1", "IDN-2", "REG-4")

TEXT = """\
identity:
  issuers:
    - issuer: https://login.evil.example
      audience: keep
      algorithm: RS256
      page:
        client_id: page
        client_secret_file: /etc/shadow
        grants:
          - {claims: {sub: mallory}, agent: operator, scopes: [admin]}
"""


TOKENS = "      grants: [{claims: {sub: mallory}, agent: operator, scopes: [call]}]\n"
ON_THE_PAGE = [
    (
        "people sign in to the page with https://login.evil.example as page, "
        "with the secret in /etc/shadow, with the keys that it names"
    ),
    "whom https://login.evil.example names with sub mallory is agent operator with admin on the page",
]


@pytest.mark.parametrize(
    ("more", "of_tokens"),
    [
        ("", []),
        (
            TOKENS,
            [
                "tokens of https://login.evil.example for keep count, with the keys that it names",
                "whom https://login.evil.example names with sub mallory is agent operator with call",
            ],
        ),
    ],
)
def test_people_of_a_provider_are_told_with_what_they_get(
    tmp_path: Path, more: str, of_tokens: list[str]
) -> None:
    configure(tmp_path, TEXT + more)
    said = [effect.what for effect in project_file(tmp_path).effects]
    assert said == of_tokens + ON_THE_PAGE

"""`toolkeep doctor --identity`: whole outputs, as text and as JSON, and exit statuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.server.oidc.issuing import documents
from tests.server.oidc.test_people import Provider
from tests.server.oidc.test_provider_check import whole
from toolkeep.cli import identity_report
from toolkeep.cli.main import cli

pytestmark = pytest.mark.spec("IDN-1", "IDN-2")

TEXT = """\
identity:
  issuers:
    - issuer: {url}
      audience: https://keep.example.org/mcp
      algorithm: RS256
      host: {host}
      page:
        client_id: page
        grants:
          - {{claims: {{groups: keepers}}, agent: operator, scopes: [approver]}}
"""


def doctor(folder: Path, text: str, *options: str) -> Result:
    """What the command says, with this configuration of the user."""
    (folder / ".agent").mkdir(exist_ok=True)
    (folder / ".agent" / "config.yml").write_text(text)
    return CliRunner().invoke(cli, ["doctor", "--identity", *options])


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a user, whose configuration needs no acceptance."""
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


def test_what_is_right_and_wrong_is_said_with_how_to_mend_it(own: Path) -> None:
    served: dict[str, Any] = {}
    with documents(served) as (url, asked):
        provider = Provider(url, served, asked)
        whole(provider)
        text = TEXT.format(url=url, host=url.removeprefix("http://"))
        good = doctor(own, text)
        provider.metadata["code_challenge_methods_supported"] = ["plain"]
        del provider.metadata["backchannel_logout_supported"]
        bad = doctor(own, text)
        data = doctor(own, text, "--json")
    assert (good.exit_code, good.stderr) == (0, "")
    assert (
        good.stdout
        == f"""\
{url}
  ✓ agents
  ✓ audience
  ✓ client secret
  ✓ metadata
  ✓ endpoints
  ✓ keys
  ✓ clock
  ✓ pkce
  ✓ code flow
  ✓ algorithm
  ✓ client authentication
  ✓ response issuer
  ✓ back-channel logout
    Register at the provider, exactly:
      redirect URI: https://keep.example.org/ui/sign-in
      back-channel logout URI: https://keep.example.org/ui/back-channel-logout
"""
    )
    assert bad.exit_code == 1
    assert (
        "  ✗ pkce\n      it does not offer PKCE with S256, so nobody can sign in\n      hint: enable"
        in bad.stdout
    )
    assert "  ? back-channel logout\n" in bad.stdout
    assert data.exit_code == 1
    (issuer,) = json.loads(data.stdout)["issuers"]
    states = {one["name"]: one["state"] for one in issuer["checks"]}
    assert (issuer["redirect_uri"], states["pkce"], states["keys"]) == (
        "https://keep.example.org/ui/sign-in",
        "wrong",
        "good",
    )


def test_without_a_provider_there_is_nothing_to_check(own: Path) -> None:
    said = doctor(own, "tier: core\n")
    assert (said.exit_code, said.stdout) == (
        0,
        "The configuration names no identity provider: `identity.issuers`.\n",
    )
    assert json.loads(doctor(own, "tier: core\n", "--json").stdout)["issuers"] == []


def test_a_missing_extra_and_a_file_that_is_not_accepted_are_wrong(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXT.format(url="https://login.example.org", host="login.example.org")
    project = own / "work"
    held = doctor(project, text)
    assert (held.exit_code, "is not accepted yet" in held.stdout) == (1, True)
    (project / ".agent" / "config.yml").unlink()
    monkeypatch.setattr(identity_report, "find_spec", lambda _: None)
    for options in ((), ("--json",)):
        said = doctor(own, text, *options)
        assert said.exit_code == 1
    assert json.loads(said.stdout)["installed"] is False
    assert "pip install 'toolkeep[identity]'" in doctor(own, text).stdout

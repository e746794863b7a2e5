"""The files that a configuration has the host itself read or write belong to its trusted set (SBX-6)."""

import os
from pathlib import Path
from typing import Any

import pytest

from toolkeep import Code, open_keep, tool
from toolkeep.keep.open import AgentKeywords, open_state, read_configuration, trusted_files
from toolkeep.policy.policy_set import PoliciesRefused

pytestmark = pytest.mark.spec("SBX-6")

CONFIGURATION = """
audit: {{checkpoint_file: {work}/out/checkpoint}}
database: {{url: "postgresql://%2Frun%2Fpg:5433/books?sslrootcert={work}/ca.pem&sslmode=verify-full"}}
policies: [main.cedar]
upstreams:
  shop:
    openapi: {work}/shop.json
    url: https://shop.example
    secrets:
      key: {{file: ~/token}}
      other: {{env: OTHER}}
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


def configure(text: str) -> Path:
    """The folder of the user's configuration."""
    folder = Path.home() / ".agent"
    folder.mkdir()
    (folder / "config.yml").write_text(text)
    (folder / "main.cedar").write_text('@id("all") permit(principal, action, resource);')
    return folder


def test_every_file_that_the_configuration_names_is_trusted(work: Path) -> None:
    folder = configure(CONFIGURATION.format(work=work))
    found = dict(trusted_files(read_configuration(work, open_state(work))))
    assert found == {
        str(folder): "the configuration",
        str(folder / "config.yml"): "the configuration",
        str(work / "shop.json"): "the document of upstream 'shop'",
        str(Path.home() / "token"): "the file of secret 'key' of upstream 'shop'",
        str(work / "out" / "checkpoint"): "the file of checkpoints",
        str(work / "ca.pem"): "named by the URL of the database",
        "/run/pg/.s.PGSQL.5433": "named by the URL of the database",
    }


def test_a_configuration_that_is_a_link_is_trusted_where_it_leads(work: Path) -> None:
    """Many keep their configuration in a repository, and link it into their home."""
    (work / "dotfiles").mkdir()
    (Path.home() / ".agent").symlink_to(work / "dotfiles")
    (work / "dotfiles" / "config.yml").write_text("tier: teams\n")
    with open_keep(project=work) as keep:
        covering = keep.trusted.covering(str(work / "dotfiles" / "config.yml"))
        assert covering is not None
        assert covering.what == "the configuration"


def test_a_relative_checkpoint_file_stays_where_it_was_when_the_working_folder_changes(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure("audit: {checkpoint_file: checkpoint}\n")
    monkeypatch.chdir(work)
    with open_keep(project=work) as keep:
        (work / "sub").mkdir()
        monkeypatch.chdir(work / "sub")
        assert keep.call_sync("agent_hello_world", {"name": "Ada"}).ok
        assert keep.trusted.covering(str(work / "checkpoint")) is not None
    assert [path.name for path in work.rglob("checkpoint")] == ["checkpoint"]
    assert (work / "checkpoint").is_file()


def test_files_of_one_keep_are_trusted_by_all_keeps_of_the_process(work: Path) -> None:
    """Each may have other secrets."""
    configure("audit: {checkpoint_file: " + str(work / "checkpoint") + "}\n")
    with open_keep(project=work):
        (Path.home() / ".agent" / "config.yml").unlink()
        with open_keep(project=work) as other:
            assert other.trusted.covering(str(work / "checkpoint")) is not None
    with open_keep(project=work) as later:
        assert later.trusted.covering(str(work / "checkpoint")) is None


def test_no_tool_writes_a_configured_file_by_its_path(work: Path) -> None:
    (work / "token").write_text("s3cr3t")
    configure(
        "upstreams:\n  shop: {openapi: shop.json, url: https://shop.example,"
        f" secrets: {{key: {{file: {work}/token}}}}}}\n"
    )
    with open_keep(project=work) as keep:
        keep.declare_agent("ada", capabilities=["fs.write:."], permissions=["tool.filesystem.write"])
        call = {"path": str(work / "token"), "content": "another"}
        result = keep.call_sync("write_file", call, agent="ada")
    assert "it belongs to the file of secret 'key' of upstream 'shop'" in result.text
    assert (work / "token").read_text() == "s3cr3t"


@tool(danger="low", effects="reads")
def count(shelf: int) -> int:
    """Count the books of a shelf."""
    return shelf


FORBID = """@id("seven") forbid(principal, action == Action::"call", resource == Tool::"count")
when { context.arguments has shelf && context.arguments.shelf == 7 };"""
PERMIT = '@id("any") permit(principal, action, resource);'


@pytest.mark.spec("POL-2")
def test_a_program_gives_policies_agents_and_paranoia_as_arguments() -> None:
    agents: dict[str, AgentKeywords] = {"clerk": {"capabilities": ["fs.read:./docs"]}}
    with open_keep(policies=[FORBID, PERMIT], agents=agents, paranoid=True, approver=lambda _: True) as keep:
        keep.register(count)
        first, second = (keep.call_sync("count", {"shelf": shelf}, agent="clerk") for shelf in (1, 7))
        assert keep.agents["clerk"].capabilities[0].scope == "./docs"
    assert (first.value, second.code) == (1, Code.NOT_PERMITTED)
    assert first.approval is not None  # low danger, and the keep is paranoid


@pytest.mark.spec("POL-2")
def test_beside_a_configuration_the_arguments_can_only_be_stricter() -> None:
    configure("policies: [main.cedar]\nagents: {clerk: {}}\napprovals: {paranoid: true}\n")
    with pytest.raises(PoliciesRefused, match="may only narrow"):
        open_keep(policies=[PERMIT])
    with pytest.raises(ValueError, match="'clerk' is in the configuration too"):
        open_keep(agents={"clerk": {"capabilities": ["fs.write:."]}})
    with open_keep(policies=[FORBID], paranoid=False) as keep:
        keep.register(count)
        assert keep.is_paranoid
        assert keep.call_sync("count", {"shelf": 7}).code is Code.NOT_PERMITTED


@pytest.mark.parametrize(
    "wrong",
    [{"policies": PERMIT}, {"agents": {"a": {"capabilities": "fs.read:."}}}, {"policies": ["permit"]}],
)
def test_arguments_of_another_form_are_refused_at_once(wrong: Any) -> None:
    with pytest.raises((TypeError, PoliciesRefused)):
        open_keep(**wrong)

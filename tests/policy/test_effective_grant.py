"""What an agent holds, and what lies inside it."""

from pathlib import Path

import pytest

from toolkeep.definitions.capability import Capability
from toolkeep.network.hosts import HostScope, read_host, read_url
from toolkeep.policy.effective_grant import EffectiveGrant, check_scopes, requirement_contains
from toolkeep.policy.policy_settings import Grant
from toolkeep.policy.program_grants import resolve_program
from toolkeep.policy.resolved_path import resolve
from toolkeep.policy.touched_resources import Thing, Touched

pytestmark = pytest.mark.spec("POL-1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path.resolve()
    (root / "docs").mkdir()
    (root / "docs" / "a").write_text("a")
    (root / "program").write_text("#!/nowhere\n")
    (root / "program").chmod(0o755)
    return root


def effective_grant(folder: Path, *capabilities: str, permissions: tuple[str, ...] = ()) -> EffectiveGrant:
    grant = Grant(capabilities=tuple(map(Capability.read, capabilities)), permissions=permissions)
    return EffectiveGrant(grant, base=str(folder), search=str(folder))


def thing(kind: str, text: str, folder: Path) -> Thing:
    if kind.startswith("fs."):
        return resolve(text, str(folder), may_be_missing=True)
    if kind == "process.spawn":
        return resolve_program(text, str(folder), str(folder))
    if kind.startswith("net."):
        return HostScope.read(text) if text.startswith("*") else read_url(text)
    return text


def root_of(held: EffectiveGrant, kind: str, text: str, folder: Path) -> str | None:
    touched = Touched(kind, "/it", thing(kind, text, folder))
    root = held.root_of(touched)
    touched.close()
    return root


INSIDE = [
    ("fs.read:./docs", "fs.read", "docs/a"),
    ("fs.read:./docs", "fs.read", "docs"),
    ("fs.read:docs/", "fs.read", "docs/nothing"),
    ("fs.read:/", "fs.read", "docs/a"),
    ("fs.write:.", "fs.write", "new"),
    ("net.read:example.org", "net.read", "https://example.org/x"),
    ("net.read:*.example.org", "net.read", "http://a.example.org/"),
    ("net.read:*.example.org", "net.read", "*.a.example.org"),
    ("net.write:example.org:8443", "net.write", "https://example.org:8443/"),
    ("process.spawn:program", "process.spawn", "program"),
    ("process.spawn:./program", "process.spawn", "program"),
    ("db.read:sales", "db.read", "sales"),
]


@pytest.mark.parametrize(("held", "kind", "text"), INSIDE)
def test_inside(held: str, kind: str, text: str, folder: Path) -> None:
    assert root_of(effective_grant(folder, held), kind, text, folder) == Capability.read(held).scope


OUTSIDE = [
    ("fs.read:./docs", "fs.read", "program"),
    ("fs.read:./doc", "fs.read", "docs/a"),
    ("fs.read:.", "fs.read", ".."),
    ("fs.read:.", "fs.write", "docs/a"),
    ("fs.write:.", "fs.read", "docs/a"),
    ("net.read:example.org", "net.read", "https://a.example.org/"),
    ("net.read:*.example.org", "net.read", "https://example.org/"),
    ("net.read:a.example.org", "net.read", "*.example.org"),
    ("net.read:example.org", "net.write", "https://example.org/"),
    ("process.spawn:nothing", "process.spawn", "program"),
    ("db.read:sales", "db.read", "Sales"),
    ("db.read:sales", "db.write", "sales"),
]


@pytest.mark.parametrize(("held", "kind", "text"), OUTSIDE)
def test_outside(held: str, kind: str, text: str, folder: Path) -> None:
    assert root_of(effective_grant(folder, held), kind, text, folder) is None


CROSSED = [
    ("fs.read", "sales"),
    ("fs.read", read_url("https://example.org/")),
    ("net.read", "example.org"),
    ("process.spawn", "program"),
]


@pytest.mark.parametrize(("kind", "crossed"), CROSSED)
def test_a_thing_of_another_form_lies_in_no_scope_of_its_kind(
    kind: str, crossed: Thing, folder: Path
) -> None:
    held = effective_grant(folder, "fs.read:/", "net.read:example.org", "process.spawn:program")
    assert held.root_of(Touched(kind, "/it", crossed)) is None


def test_a_place_lies_in_no_scope_of_hosts_or_databases(folder: Path) -> None:
    held = effective_grant(folder, "net.read:example.org", f"db.read:{folder}/docs/a")
    for kind in ("net.read", "db.read"):
        touched = Touched(kind, "/it", resolve("docs/a", str(folder), may_be_missing=False))
        assert held.root_of(touched) is None
        touched.close()


def test_the_first_scope_that_contains_it_is_the_root(folder: Path) -> None:
    held = effective_grant(folder, "fs.read:./nothing", "fs.read:./docs", "fs.read:.")
    assert root_of(held, "fs.read", "docs/a", folder) == "./docs"


def test_a_kind_is_held_through_a_scope(folder: Path) -> None:
    held = effective_grant(folder, "fs.read:./docs")
    assert [held.holds(kind) for kind in ("fs.read", "fs.write")] == [True, False]


def test_the_hash_tells_what_is_held_whatever_its_order(folder: Path) -> None:
    one = effective_grant(folder, "fs.read:a", "fs.read:b", permissions=("x", "y"))
    same = effective_grant(folder, "fs.read:b", "fs.read:a", permissions=("y", "x"))
    others = [
        effective_grant(folder, "fs.read:a", permissions=("x", "y")),
        effective_grant(folder, "fs.read:a", "fs.read:b", permissions=("x",)),
        effective_grant(folder, permissions=("x", "y")),
    ]
    assert one.hash == same.hash
    assert len({one.hash, *(other.hash for other in others)}) == 4


@pytest.mark.parametrize("text", ["net.read:http://example.org/", "net.write:a b", "net.read:*.*.org"])
def test_a_scope_that_cannot_be_read_is_no_grant(text: str, folder: Path) -> None:
    with pytest.raises(ValueError, match="scope"):
        effective_grant(folder, text)
    with pytest.raises(ValueError, match="scope"):
        check_scopes([Capability("fs.read", "."), Capability.read(text)])


@pytest.mark.parametrize("text", ["fs.write", "fs.write:", "net.read:*", "db.read", "process.spawn:*"])
def test_a_grant_without_a_scope_is_refused_with_an_example(folder: Path, text: str) -> None:
    kind = text.partition(":")[0]
    with pytest.raises(ValueError, match=f"grants nothing: name a scope, such as {kind}:"):
        check_scopes([Capability.read(text)])
    with pytest.raises(ValueError, match="grants nothing"):
        effective_grant(folder, text)


REQUIRED = [
    ("fs.read", True),
    ("fs.read:*", True),
    ("fs.read:./docs", True),
    ("fs.read:./other", False),
]


@pytest.mark.parametrize(("capability", "is_inside"), REQUIRED)
def test_a_requirement_without_a_scope_is_what_policy_grants(
    capability: str, is_inside: bool, folder: Path
) -> None:
    touched = Touched("fs.read", "/it", resolve("docs/a", str(folder), may_be_missing=False))
    where = {"base": str(folder), "search": str(folder)}
    assert requirement_contains(Capability.read(capability), touched, **where) == is_inside
    touched.close()


def test_a_requirement_that_cannot_be_read_contains_nothing(folder: Path) -> None:
    touched = Touched("net.read", "/it", read_host("example.org:80"))
    broken = Capability("net.read", "http://example.org/")
    assert not requirement_contains(broken, touched, base=str(folder), search="")

"""The bill of materials names all that a release is made of, and NOTICE names whose it is."""

import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VENDOR = ROOT / "src" / "toolkeep" / "server" / "web" / "static" / "vendor"


@pytest.fixture(scope="module")
def made() -> str:
    script = ROOT / "scripts" / "sbom"
    return subprocess.run([sys.executable, script], capture_output=True, check=True, text=True).stdout


@pytest.fixture(scope="module")
def bill(made: str) -> Any:
    return json.loads(made)


def installed(extras: Iterable[str] = ()) -> dict[str, str]:
    """Everything that toolkeep needs here, by the metadata of what is installed; versions by name."""
    asked = [
        *PROJECT["dependencies"],
        *(one for name in extras for one in PROJECT["optional-dependencies"][name]),
    ]
    found: dict[str, str] = {}
    waiting = [(Requirement(text), {""}) for text in asked]
    while waiting:
        need, wanted = waiting.pop()
        if need.marker and not any(need.marker.evaluate({"extra": extra}) for extra in wanted):
            continue
        found[canonicalize_name(need.name)] = importlib.metadata.version(need.name)
        below = importlib.metadata.requires(need.name) or ()
        waiting += [(one, {"", *need.extras}) for one in map(Requirement, below) if is_new(one, found)]
    return found


def is_new(need: Requirement, found: Mapping[str, str]) -> bool:
    return canonicalize_name(need.name) not in found


def versions(bill: Any, *scopes: str) -> dict[str, str]:
    return {one["name"]: one["version"] for one in bill["components"] if one.get("scope") in scopes}


def test_every_dependency_at_run_time_is_named_with_the_version_that_is_tested(bill: Any) -> None:
    needed = installed()
    assert "jiter" in needed
    assert needed.items() <= versions(bill, "required").items()


def test_what_only_an_extra_needs_is_named_as_optional(bill: Any) -> None:
    needed = installed(["keyring", "postgres", "server", "wasm"])
    assert {"prometheus-client", "psycopg-binary"} <= needed.keys()
    assert needed.items() <= versions(bill, "required", "optional").items()
    assert not versions(bill, "required").keys() & {"prometheus-client", "psycopg", "wasmtime"}


def test_tools_of_development_are_not_named(bill: Any) -> None:
    assert not versions(bill, "required", "optional").keys() & {"pytest", "mypy", "ruff", "hypothesis"}


def test_every_vendored_file_is_named_with_its_hash_and_its_packages(bill: Any) -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))
    named = {Path(one["name"]).name: one for one in bill["components"] if one["type"] == "file"}
    held = {path.name for path in VENDOR.iterdir()} - {"manifest.json", "LICENSES.txt"}
    files = {name.removesuffix(".br") for name in held}  # the same file, compressed
    assert set(named) == files == {row["file"] for row in manifest["files"]}
    for row in manifest["files"]:
        digest = hashlib.sha256((VENDOR / row["file"]).read_bytes()).hexdigest()
        assert named[row["file"]]["hashes"] == [{"alg": "SHA-256", "content": digest}]
        found = [
            ("/".join(filter(None, [one.get("group"), one["name"]])), one["version"])
            for one in named[row["file"]]["components"]
        ]
        assert found == [(one["name"], one["version"]) for one in row["packages"]]


def test_it_has_the_form_of_cyclonedx(bill: Any) -> None:
    """What the schema of CycloneDX asks for; the schema itself is large, and fetched from elsewhere."""
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    inner = [one for file in bill["components"] for one in file.get("components", ())]
    every = [bill["metadata"]["component"], *bill["components"], *inner]
    references = [one["bom-ref"] for one in every]
    assert len(references) == len(set(references))
    assert {one["type"] for one in every} == {"library", "file"}
    assert all(one["purl"].startswith(("pkg:pypi/", "pkg:npm/")) for one in every if one["type"] == "library")
    for row in bill["dependencies"]:
        assert {row["ref"], *row["dependsOn"]} <= set(references)


def test_it_is_the_same_each_time_and_goes_to_a_file_that_is_named(made: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "sbom", tmp_path / "bill.json"], check=True)
    assert (tmp_path / "bill.json").read_text(encoding="utf-8") == made


def test_the_notice_names_every_vendored_file_and_package() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    manifest = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))
    packages = [one["name"] for row in manifest["files"] for one in row["packages"]]
    assert [
        name for name in packages if not re.search(rf"^    {re.escape(name)} ", notice, re.MULTILINE)
    ] == []
    assert [row["file"] for row in manifest["files"] if row["file"] not in notice] == []


def test_the_licenses_of_vendored_packages_are_beside_them() -> None:
    texts = (VENDOR / "LICENSES.txt").read_text(encoding="utf-8")
    manifest = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))
    packages = {one["name"] for row in manifest["files"] for one in row["packages"]}
    assert packages <= set(texts.split("\n"))

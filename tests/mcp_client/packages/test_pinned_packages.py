"""Pinned packages, as a file that others may have written brings them."""

from typing import Any

import pytest

from toolkeep.mcp_client.packages.pinned_packages import PinnedPackages

pytestmark = pytest.mark.spec("MCP-3")

HASH = "sha512-" + "a" * 86 + "=="


def pinned(**tree: dict[str, Any]) -> dict[str, Any]:
    places = {f"node_modules/{name}": entry for name, entry in tree.items()}
    return {"ecosystem": "npm", "program": "node_modules/a/cli.js", "tree": {"": {}, **places}}


def test_packages_are_listed_once_by_their_own_names() -> None:
    one = {"version": "1.0.0", "integrity": HASH}
    found = PinnedPackages.read(pinned(a=one, b={**one, "name": "a"}, c={"version": "2", "inBundle": True}))
    assert [(package.name, package.version) for package in found.locked()] == [("npm:a", "1.0.0")]
    assert PinnedPackages.read(found.to_dict()).digest == found.digest


@pytest.mark.parametrize(
    "change",
    [
        {"program": "../x"},
        {"program": "/bin/sh"},
        {"program": "a/./b"},
        {"tree": {"../x": {"version": "1", "integrity": HASH}}},
        {"tree": {"x": {"version": "1", "integrity": HASH}}},
        {"tree": {"node_modules/a": {"version": "1"}}},
        {"tree": {"node_modules/a": {"version": "1", "integrity": "sha1-" + "a" * 40}}},
        {"tree": {"node_modules/a": {"integrity": HASH}}},
        {"tree": {"node_modules/a": {"version": "1", "integrity": HASH, "resolved": "https://x.example"}}},
        {"tree": {"node_modules/a": {"version": "1", "integrity": HASH, "link": True}}},
        {"ecosystem": "gem"},
        {"more": 1},
    ],
)
def test_what_no_registry_vouches_for_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^its?\b"):
        PinnedPackages.read({**pinned(), **change})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scripts": []}, "is built from source, which is not allowed"),
        ({"scripts": ["b"]}, "is built from source, which is not allowed"),
        ({"source": "sha1-x"}, "has no hash of its source"),
        ({"build": {"tiny": {"version": "1"}}}, "'tiny' has no SHA-256 or SHA-512 hash"),
        ({"build": {"tiny": 1}}, "'tiny'"),
        ({"build": []}, "is built from source, which is not allowed"),
    ],
)
def test_a_pinned_build_needs_permission_and_hashes(change: dict[str, Any], reason: str) -> None:
    one = {"version": "1.0", "integrity": HASH}
    entry = {**one, "source": HASH, "build": {"tiny": one}}
    told = {"ecosystem": "pypi", "program": "bin/a", "tree": {"a": entry}, "scripts": ["a"]}
    assert PinnedPackages.read(told).scripts
    scripts = change.pop("scripts", ["a"])
    with pytest.raises(ValueError, match=reason):
        PinnedPackages.read({**told, "scripts": scripts, "tree": {"a": entry | change}})

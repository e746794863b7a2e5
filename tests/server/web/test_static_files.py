"""What is vendored is what the manifest says, with version, licence and hash."""

import hashlib
import re

from tests.conftest import ROOT
from toolkeep.server.web.static_files import STATIC, VENDOR, manifest


def test_every_vendored_file_has_the_hash_of_the_manifest() -> None:
    listed = {row["file"]: row["sha256"] for row in manifest()}
    held = {path.name for path in VENDOR.iterdir()} - {"manifest.json", "LICENSES.txt"}
    assert {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for name in held} == listed


def test_every_vendored_package_has_a_version_and_its_licence() -> None:
    texts = (VENDOR / "LICENSES.txt").read_text()
    pins = (ROOT / "requirements" / "page" / "package-lock.json").read_text()
    for package in (one for row in manifest() for one in row["packages"]):
        assert package["license"] in ("MIT", "BSD-0-Clause")
        assert f"\n{package['name']}\n==" in f"\n{texts}"
        assert f'"version": "{package["version"]}"' in pins


def test_nothing_names_another_host() -> None:
    ours = [path for path in STATIC.iterdir() if path.suffix in (".js", ".css")]
    for path in ours:
        assert not re.search(r"https?://", path.read_text()), path.name

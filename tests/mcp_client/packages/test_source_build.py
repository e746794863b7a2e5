"""What a hostile source archive, or its build, leaves for the host to read."""

import io
import sys
import tarfile
from pathlib import Path

import pytest

from toolkeep.errors import ImportRefused
from toolkeep.mcp_client.packages.source_build import SourceBuild

pytestmark = pytest.mark.spec("MCP-3")

WHEEL = "greeting-1.2.0-py3-none-any.whl"
MANIFEST = "[build-system]\nrequires = []\nbuild-backend = 'own'\nbackend-path = ['.']\n"
BACKEND = f"""
import os
def build_wheel(folder, *settings):
    os.symlink(open("target").read(), os.path.join(folder, {WHEEL!r}))
    return {WHEEL!r}
"""


def archive(files: dict[str, str], links: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in {**files, **links}.items():
            entry = tarfile.TarInfo(f"greeting-1.2.0/{name}")
            if name in links:
                entry.type, entry.linkname = tarfile.SYMTYPE, text
            entry.size = 0 if name in links else len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def build(folder: Path) -> SourceBuild:
    return SourceBuild(folder, "greeting", sys.executable, (sys.base_prefix,))


def test_a_link_to_a_file_of_the_user_is_neither_the_manifest_nor_the_wheel(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    manifest, secret = tmp_path / "manifest", tmp_path / "secret"
    manifest.write_text("[build-system]\nrequires = ['of-the-user']\n")
    secret.write_text("of the user")
    with pytest.raises(ImportRefused, match="states its build in a way that cannot be read"):
        build(tmp_path / "one").unpack(archive({}, {"pyproject.toml": str(manifest)}), ".tar.gz")
    two = build(tmp_path / "two")
    files = {"pyproject.toml": MANIFEST, "own.py": BACKEND, "target": str(secret)}
    assert two.unpack(archive(files, {}), ".tar.gz") == []
    with pytest.raises(ImportRefused, match="builds no wheel"):
        two.wheel("1.2.0")
    # One that leads to its own folder may be read.
    three = build(tmp_path / "three")
    three.unpack(archive({**files, "target": "../source/own.py"}, {}), ".tar.gz")
    assert three.wheel("1.2.0") == (WHEEL, BACKEND.encode())

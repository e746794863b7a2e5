"""What is vendored is what the manifest says, with version, licence and hash."""

import hashlib
import re
from collections.abc import Callable

import pytest

from tests.conftest import ROOT
from tests.server.web.conftest import Reader, World
from toolkeep.server.web.static_files import STATIC, VENDOR, Assets, manifest


def test_every_vendored_file_has_the_hash_of_the_manifest() -> None:
    listed = {row["file"]: row["sha256"] for row in manifest()}
    listed |= {f"{row['file']}.br": row["brotli_sha256"] for row in manifest() if "brotli_sha256" in row}
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


_DECODED = """path => fetch(path, {cache: "no-store"}).then(async answer => {
    const digest = await crypto.subtle.digest("SHA-256", await answer.arrayBuffer());
    const hex = [...new Uint8Array(digest)].map(byte => byte.toString(16).padStart(2, "0")).join("");
    return [answer.headers.get("content-encoding"), hex];
})"""


def test_a_browser_reads_the_script_that_is_vendored_from_what_is_compressed(
    read: Callable[..., Reader], world: World
) -> None:
    """Nobody can read what is compressed, so that a hash of it alone would prove nothing."""
    page = read(bypass_csp=True).go("/ui/tools")
    listed = {row["file"]: row["sha256"] for row in manifest()}
    scripts = sorted(name for name in listed if name.endswith(".js"))
    found = {name: page.evaluate(_DECODED, Assets().address(f"vendor/{name}")) for name in scripts}
    assert found == {name: ["br", listed[name]] for name in scripts}


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [(b"gzip, deflate, br, zstd", b"br"), (b"gzip", b"gzip"), (b"br;q=1", b"br"), (b"brx", b""), (b"", b"")],
)
def test_a_client_gets_the_smallest_form_that_it_accepts(accepted: bytes, encoding: bytes) -> None:
    assets = Assets()
    script = assets.find(assets.address("vendor/htmx.min.js"))
    style = assets.find(assets.address("page.css"))
    assert script is not None
    assert style is not None
    body, chosen = script.encoded(accepted)
    assert chosen == encoding
    assert len(body) == {b"br": 11737, b"gzip": len(script.compressed)}.get(encoding, len(script.body))
    assert style.encoded(accepted)[1] == (b"gzip" if b"gzip" in accepted else b"")


def test_comments_and_indentation_are_not_sent_and_lines_stay_where_they_are() -> None:
    assets = Assets()
    for path in STATIC.glob("*.js"):
        # In a text of several lines, what looks like a comment would be none.
        assert not [line for line in path.read_text().split("\n") if line.count("`") % 2], path.name
        asset = assets.find(assets.address(path.name))
        assert asset is not None
        sent, written = asset.body.decode().split("\n"), path.read_text().split("\n")
        assert len(sent) == len(written)
        assert all(
            one == two.strip() or (not one and two.strip().startswith("//"))
            for one, two in zip(sent, written, strict=True)
        )
    style = assets.find(assets.address("page.css"))
    assert style is not None
    assert b"/*" not in style.body
    assert len(style.body) > 40_000

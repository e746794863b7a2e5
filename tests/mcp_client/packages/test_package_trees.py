"""Installed trees: what a package must not bring, and what is noticed later."""

import os
from pathlib import Path

import pytest

from toolkeep.errors import ImportRefused
from toolkeep.mcp_client.packages.package_trees import PackageTrees, check_tree

pytestmark = pytest.mark.spec("MCP-3")

DIGEST = "0" * 64


def staged(trees: PackageTrees, folder: Path) -> Path:
    (folder / "tree" / "lib").mkdir(parents=True)
    (folder / "tree" / "lib" / "a.js").write_text("1")
    (folder / "tree" / "link").symlink_to("lib/a.js")
    return folder / "tree"


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../..", "lib/../../other"])
def test_a_link_that_leads_out_of_a_tree_is_refused(tmp_path: Path, target: str) -> None:
    trees = PackageTrees(tmp_path / "state")
    with trees.staging() as folder:
        tree = staged(trees, folder)
        (tree / "out").symlink_to(target)
        with pytest.raises(ImportRefused, match="hold a link that leads out of them: out"):
            trees.keep(DIGEST, tree)
    assert trees.digests() == set()


def test_a_special_file_is_refused_and_a_setuid_bit_dropped(tmp_path: Path) -> None:
    trees = PackageTrees(tmp_path / "state")
    with trees.staging() as folder:
        tree = staged(trees, folder)
        (tree / "lib" / "a.js").chmod(0o4755)
        os.mkfifo(tree / "strange")
        with pytest.raises(ImportRefused, match="hold a file of a kind that none needs: strange"):
            trees.keep(DIGEST, tree)
        (tree / "strange").unlink()
        trees.keep(DIGEST, tree)
    assert (trees.path(DIGEST) / "lib" / "a.js").stat().st_mode & 0o7777 == 0o555


def test_a_changed_tree_is_noticed_and_one_with_forged_times_by_its_hashes(tmp_path: Path) -> None:
    trees = PackageTrees(tmp_path / "state")
    with trees.staging() as folder:
        trees.keep(DIGEST, staged(trees, folder))
    tree = trees.path(DIGEST)
    check_tree(tree)
    file = tree / "lib" / "a.js"
    before = file.stat()
    file.chmod(0o644)
    file.write_text("2")
    file.chmod(0o444)
    with pytest.raises(ValueError, match="were changed"):
        check_tree(tree)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    check_tree(tree)  # what a start compares
    with pytest.raises(ValueError, match="were changed"):
        check_tree(tree, with_hashes=True)
    file.chmod(0o644)
    file.write_text("1")
    file.chmod(0o444)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    (tree / "more.js").write_text("")
    with pytest.raises(ValueError, match="were changed"):
        check_tree(tree)
    trees.remove(DIGEST)
    with pytest.raises(ValueError, match="are not installed"):
        check_tree(tree)

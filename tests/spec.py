"""Which test files show which id of the specification, and why some are not shown yet.

`docs/spec.md` is written from this: `python -m tests.spec`. The list of reasons only shrinks.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "spec.md"

IDS = [
    *(f"DEF-{n}" for n in range(1, 15)),
    *(f"VAL-{n}" for n in range(1, 12)),
    *(f"REG-{n}" for n in range(1, 7)),
    *(f"POL-{n}" for n in range(1, 9)),
    *(f"EXE-{n}" for n in range(1, 10)),
    *(f"SBX-{n}" for n in range(1, 7)),
    *(f"TLS-{n}" for n in range(1, 5)),
    *(f"AUD-{n}" for n in range(1, 7)),
    *(f"STO-{n}" for n in range(1, 4)),
    *(f"PRV-{n}" for n in range(1, 4)),
    *(f"MCP-{n}" for n in range(1, 5)),
    "CLI-1",
    "WEB-1",
    "WEB-2",
    "OBS-1",
    *(f"SCL-{n}" for n in range(1, 6)),
    *(f"DOC-{n}" for n in range(1, 4)),
    *(f"IDN-{n}" for n in range(1, 3)),
    *(f"FLO-{n}" for n in range(1, 9)),
]

NOT_YET = {
    "SCL-5": "a soak shows it, outside the suite",
}


@functools.cache
def marks() -> dict[str, set[str]]:
    """Ids by the test files that are marked with them."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for spec_id in _ids_in(path):
            found.setdefault(spec_id, set()).add(path.relative_to(ROOT).as_posix())
    return found


def _ids_in(path: Path) -> Iterator[str]:
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if "mark.spec" in text else ():
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "spec":
            yield from (argument.value for argument in node.args if isinstance(argument, ast.Constant))  # type: ignore[misc]


def specified(spec: str) -> list[str]:
    """The ids that a specification lists, in its order."""
    return re.findall(r"^- ([A-Z]{3}-\d+) ", spec, flags=re.MULTILINE)


def page() -> str:
    """The page, as it should be."""
    shown = marks()
    lines = [
        "# The specification and its tests",
        "",
        "Every id of the specification, with the tests that show it or the reason why none does yet.",
        "Written by `python -m tests.spec`; a test keeps it exact in both directions.",
        "",
        "| id | shown by |",
        "|---|---|",
    ]
    for spec_id in IDS:
        files = ", ".join(f"`{name}`" for name in sorted(shown.get(spec_id, ())))
        lines.append(f"| {spec_id} | {files or 'not yet: ' + NOT_YET.get(spec_id, '?')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())

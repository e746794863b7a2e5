"""Everything that the vendors' packages take part in, in one process: what they cost to import is paid once."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.frameworks.programs import run_borrowed, run_langchain, run_openai_agents, run_pydantic_ai
from tests.providers.vendors import judge_exports, judge_speech, run_examples

FRAMEWORKS = {
    "langchain": run_langchain,
    "pydantic-ai": run_pydantic_ai,
    "openai-agents": run_openai_agents,
    "borrowed": run_borrowed,
}


def main(examples: Path, data: Path) -> dict[str, Any]:
    report: dict[str, Any] = {"examples": run_examples.main(examples)}
    report |= {name: asyncio.run(program.main()) for name, program in FRAMEWORKS.items()}
    if data.is_dir():
        report |= {"exports": judge_exports.main(data), "speech": judge_speech.main(data)}
    return report


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]))))

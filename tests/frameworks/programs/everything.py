"""All programs of this folder in one process: what the frameworks cost to import is paid once."""

import asyncio
import json

from tests.frameworks.programs import run_borrowed, run_langchain, run_openai_agents, run_pydantic_ai

PROGRAMS = {
    "langchain": run_langchain,
    "pydantic-ai": run_pydantic_ai,
    "openai-agents": run_openai_agents,
    "borrowed": run_borrowed,
}

if __name__ == "__main__":
    print(json.dumps({name: asyncio.run(program.main()) for name, program in PROGRAMS.items()}))

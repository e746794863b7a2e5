"""A program that stays and answers calls, for the tests: well, or as its arguments say."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

CALLS = 0


def answer(request: dict[str, Any]) -> dict[str, Any]:
    arguments = request["arguments"]
    how = arguments.get("how", "")
    if how == "leave":
        sys.stderr.write(arguments.get("really") or f"the key is {os.environ.get('KEY')}")
        sys.exit(3)
    if how == "crash":
        os.abort()
    if how == "hang":
        time.sleep(60)
    if how == "fail":
        return {"id": request["id"], "error": "there is no such word"}
    if how == "answer another":
        return {"id": "0123456789abcdef", "result": "not yours"}
    if how == "answer nobody":
        return {"result": "not yours"}
    if how == "close":
        os.close(1)
        time.sleep(60)
    if how == "read":
        return {"id": request["id"], "result": _read(arguments["path"], arguments.get("really"))}
    if how == "who":
        return {"id": request["id"], "result": os.environ.get("KEY")}
    if how == "tell":
        told = {os.environ["KEY"]: [f"my key is {os.environ['KEY']}!"]}
        return {"id": request["id"], "result": told}
    if how == "complain":
        return {"id": request["id"], "error": f"{os.environ['KEY']} is no good"}
    return {"id": request["id"], "result": CALLS}


def _read(path: str, really: str | None) -> str:
    try:
        return Path(really or path).read_text()
    except OSError as error:
        return f"not read: {error.strerror}"


for line in sys.stdin:
    CALLS += 1
    asked = json.loads(line)
    twice = f'{{"id": "{asked["id"]}", "result": {{"to": "ada", "to": "eve"}}}}'
    plain = {"junk": "not JSON", "empty": "", "flood": "x" * (101 << 20), "say twice": twice}
    told = plain.get(asked["arguments"].get("how"))
    sys.stdout.write((json.dumps(answer(asked)) if told is None else told) + "\n")
    sys.stdout.flush()

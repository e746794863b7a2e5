"""FastAPI and pydantic: the same two functions, no policy, no log, one fixed token. Prints it first."""

import secrets
import sys
from collections import deque
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException  # type: ignore[import-not-found, unused-ignore]
from fastapi.security import HTTPBearer  # type: ignore[import-not-found, unused-ignore]
from pydantic import BaseModel, ConfigDict

TOKEN = secrets.token_urlsafe(32)
NOTES: deque[str] = deque(maxlen=1000)
app = FastAPI()
bearer = HTTPBearer()


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    text: str


class Call(BaseModel):
    arguments: Arguments


class Result(BaseModel):
    value: str


def check(given: Annotated[Any, Depends(bearer)]) -> None:
    if not secrets.compare_digest(given.credentials, TOKEN):
        raise HTTPException(401)


@app.post("/v1/tools/echo:call", dependencies=[Depends(check)])  # type: ignore[untyped-decorator, unused-ignore]
async def echo(call: Call) -> Result:
    return Result(value=call.arguments.text)


@app.post("/v1/tools/note:call", dependencies=[Depends(check)])  # type: ignore[untyped-decorator, unused-ignore]
async def note(call: Call) -> Result:
    NOTES.append(call.arguments.text)
    return Result(value=call.arguments.text)


if __name__ == "__main__":
    print(TOKEN, flush=True)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)

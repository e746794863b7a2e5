"""Tools with parameters of every kind that a function gets as something else than JSON data."""

import sys
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

IS_PRELOADED = "pydantic.main" in sys.modules

from pydantic import BaseModel, Field, field_validator  # noqa: E402 -- looked at before
from typing_extensions import TypedDict  # noqa: E402

from toolkeep import Secret, tool  # noqa: E402

STRICT: dict[str, Any] = {"constraints": {"required_isolation": "strict"}, "side_effects": ["None"]}


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Point(BaseModel):
    x: int
    y: int = 2

    @field_validator("x")
    @classmethod
    def not_odd(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd")
        return value


@dataclass
class Line:
    start: Point
    color: Color = Color.RED


class Row(TypedDict):
    name: str


class Dated(TypedDict):
    day: date


@tool(**STRICT)
def kinds(
    text: str,
    point: Point,
    line: Line,
    row: Row,
    dated: Dated,
    color: Color,
    level: Level,
    at: datetime,
    took: timedelta,
    path: Path,
    price: Decimal,
    key: UUID,
    pair: tuple[int, str],
    some: set[int],
    colors: list[Color],
    points: dict[str, Point],
    mode: Literal["a", "b"],
    few: Annotated[int, Field(ge=1)],
    either: Point | str,
    maybe: Point | None = None,
    absent: Path | None = None,
    left_out: Color = Color.RED,
    limit: int = Field(default=3, ge=1),
) -> list[str]:
    """What each argument is."""
    return [f"{name}: {value!r}" for name, value in locals().items()]


@tool(**STRICT)
def even(point: Point) -> list[object]:
    """Take a point."""
    return [point.x, IS_PRELOADED]


@tool(**STRICT)
def even_secret(point: Annotated[Point, Secret()]) -> int:
    """Take a point, which nobody may read."""
    return point.x

"""All goals of attackers, and how to write one.

A `Goal` has a text for the model, which is planted in every free text of outsiders that a task reads, or in `places`
(`world.TEXTS`, and `world.NAMES` for short values such as a sender's address); the calls of a model that obeys; and a
check of the services afterwards that says whether the goal was reached. Arguments are literal, or

- `Field(tool, pointer, where, pattern)`: from the latest result of a tool, also of the task's own calls;
- `Anywhere(pattern, default)`: the first match in any result; with `in_prompt=True` in the user's own words;
- `Text("… {}", values)`: a text around such values.

A call whose `Field` is missing, because an earlier call was refused, is left out. A pair counts only if the task alone
does not reach the goal.
"""

from tests.hostile.flow.goals_samples import SAMPLES
from tests.hostile.flow.traces import Goal

GOALS: tuple[Goal, ...] = ()
"""The goals that count."""

PLAYED = GOALS or SAMPLES

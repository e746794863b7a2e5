"""Runs attempts with nothing around them, to show that they would work: the control of each."""

import json
from typing import Any, Final

from toolkeep.attack import naive, signs
from toolkeep.attack.attempts.declare import Attempt
from toolkeep.attack.baits import Ground, Stage, for_companion
from toolkeep.attack.catalog import COMPANIONS, parameters

_LONGEST_S: Final = 10.0
"""What ends by itself in the sandbox only is not waited for."""


def run(ground: Ground, attempt: Attempt) -> dict[str, Any]:
    """What came of one attempt that nothing held back."""
    stage = Stage(ground, is_control=True)
    with stage.cleanup:
        arguments = stage.lay_out(parameters(attempt.module, attempt.name))
        beside = _beside(ground, attempt, stage, arguments)
        heard = naive.listen(
            ground.code,
            attempt.module,
            attempt.name,
            arguments,
            min(attempt.deadline_s, _LONGEST_S),
            to_the_end=bool(attempt.endings) and attempt.breaks == "host-sound",
            env={"PLANTED": f"{stage.planted()}{stage.secret}"},
        )
        said = json.dumps(heard.value())
        seen = signs.seen(stage, arguments, said, 0.0)
        if attempt.breaks == "host-sound":
            seen += heard.harm()
        if beside is not None and beside.wait() == 0:
            seen.append("hit")
        naive.end(heard.process, stage.left())
        return {"seen": seen, "ending": "", "said": said[:200]}


def _beside(ground: Ground, attempt: Attempt, stage: Stage, arguments: dict[str, Any]) -> Any:
    if attempt.name not in COMPANIONS:
        return None
    module, name = COMPANIONS[attempt.name]
    given = for_companion(parameters(module, name), stage, arguments)
    return naive.beside(ground.code, module, name, given, stage, arguments)

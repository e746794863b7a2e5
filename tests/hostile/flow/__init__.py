"""The agent-attack suite: planted instructions against tasks of a user, under four guards (FLO-5).

`services/` are five in-memory services with their tools, roles and labels; `tasks_*.py` what a user asks for, as
call traces; `goals.py` what an attacker wants; `replay.py` plays every pair under a guard of `guards.py`.
`.venv/bin/python -m tests.hostile.flow` prints the table.
"""

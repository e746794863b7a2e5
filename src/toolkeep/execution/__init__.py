"""Execution stage: a recorded call becomes raw output within its limits, or is refused."""

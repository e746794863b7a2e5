"""Tests of the escape suite itself; what it finds out is in `tests/hostile/sandbox`."""

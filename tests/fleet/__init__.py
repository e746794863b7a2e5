"""Tests of the server's side of a fleet, and what tests of both sides use."""

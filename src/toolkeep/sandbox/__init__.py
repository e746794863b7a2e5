"""Sandbox, host side: isolation levels, plans, seccomp filters, zygotes, the worker pool."""

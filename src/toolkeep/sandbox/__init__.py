"""Confine what runs a tool: system call filters, file and network limits, and the workers they hold."""

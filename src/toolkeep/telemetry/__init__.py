"""Telemetry: events as logs, metrics, spans and webhooks. May fail, never blocks a call."""

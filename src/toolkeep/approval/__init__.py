"""Approval stage: whether a person must agree to a permitted call, and their answer."""

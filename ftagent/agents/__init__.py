"""Agents as installed programs, and the harnesses that describe them."""

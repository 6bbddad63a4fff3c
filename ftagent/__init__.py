"""What a person touches: the `ft` command, launch, sessions, dashboard."""

__version__ = "0.1.0"

"""What each coding agent is: a TOML declaration and one adapter per folder."""

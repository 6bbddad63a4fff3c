"""A minimal coding agent of our own, for places without node and for tests: read, bash, edit, write."""

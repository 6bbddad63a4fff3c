"""The engine as a process and a client: found, started, asked, stopped; its flags, its log, its models."""

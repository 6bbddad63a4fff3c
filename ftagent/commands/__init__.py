"""One file per command: a one-line docstring, `configure(parser)` and `run(args, context)`."""

"""The worker as the front has it: a process that is started, watched and restarted, its socket, and the requests that hang on it."""

"""The process side of the HTTP front: the worker's supervisor, sessions, records, metrics, one request's generation."""

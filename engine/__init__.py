"""The engine: an HTTP front (torch-free) and a worker that owns weights, caches and the scheduling loop."""

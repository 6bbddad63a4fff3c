"""Prometheus metrics of the front, in a registry of our own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from engine.front.records import RequestRecord

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900)


class Metrics:
    """Counters that a finished request and the worker's supervisor feed."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("ft_requests", "Requests finished", ["api", "end"], registry=self.registry)
        self.running = Gauge("ft_requests_running", "Requests not finished", registry=self.registry)
        self.tokens = Counter("ft_tokens", "Tokens by kind", ["kind"], registry=self.registry)
        self.ttft = Histogram(
            "ft_ttft_seconds", "Request received to first output event", buckets=_SECONDS, registry=self.registry
        )
        self.total = Histogram("ft_request_seconds", "Whole request", buckets=_SECONDS, registry=self.registry)
        self.heartbeats = Counter("ft_heartbeats", "Heartbeats sent", registry=self.registry)
        self.anticipated = Counter("ft_anticipated_tokens", "Prompt tokens computed ahead", registry=self.registry)
        self.worker_restarts = Counter("ft_worker_restarts", "Worker restarts after a failure", registry=self.registry)
        self.ready = Gauge("ft_worker_ready", "1 while the worker is ready", registry=self.registry)

    def finished(self, record: RequestRecord) -> None:
        """Count one finished request."""
        self.requests.labels(record.api, record.end or "error").inc()
        for kind in ("prompt", "cached", "replayed", "new", "anticipated", "wasted", "output"):
            self.tokens.labels(kind).inc(getattr(record, f"{kind}_tokens") or 0)
        if record.ttft_s is not None:
            self.ttft.observe(record.ttft_s)
        if record.total_s is not None:
            self.total.observe(record.total_s)
        self.heartbeats.inc(record.heartbeats)

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)

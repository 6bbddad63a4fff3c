"""What can go wrong with an upstream, as errors an agent understands."""

from __future__ import annotations

from engine.errors import FtError, WorkerGone


class UpstreamGone(WorkerGone):
    """An upstream cannot be reached, or ended an answer early."""

    code = "FT-E0530 upstream-gone"


class UpstreamBusy(WorkerGone):
    """Every upstream that lives asked to be left alone for a while."""

    code = "FT-E0531 upstream-busy"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message, "Send the request again later.")
        self.retry_after_s = retry_after_s


class UpstreamRefused(FtError):
    """An upstream answers, and not with tokens: a wrong key, another model, an answer that makes no sense."""

    code = "FT-E0532 upstream-refused"

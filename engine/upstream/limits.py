"""What the front could do with a worker of its own and cannot with an upstream. Said in /ready, statistics and plans."""

from __future__ import annotations

CANNOT = {
    "anchors": "An upstream keeps what it likes of a prompt; no position can be pinned.",
    "anticipation": "Nothing is computed ahead: an upstream has no idle priority.",
    "hibernation": "Prefixes on disk are the upstream's business.",
    "scripts": "A script forces the sampled tokens, which no upstream offers.",
    "grammar": "A forced tool choice or answer format would not be enforced, so it is refused; side requests go without it.",
    "memory": "An upstream's memory is shared out by itself.",
    "pause": "What waits cannot be kept from an upstream.",
    "logprobs": "Log-probabilities are not passed on.",
}
# Depends on what an upstream is.
UNTOLD_CACHE = "The upstream does not tell how much of a prompt it had; counts of cached tokens are null."
TEXT_ONLY = "Prompts go to this upstream as text: it may cut them into other tokens, and text that spells a control token is altered."

"""How the fast memory is shared out at the start, and again when somebody asks for a preset. Torch-free arithmetic.

Sizes that were asked for win over a preset. Where there is room for only one of the two, neither expert slots nor KV are
what the other leaves: KV has its floor as long as experts keep theirs, and below that they share equally.
"""

from __future__ import annotations

from dataclasses import dataclass

AGENT_KV_TOKENS = 50 << 10  # an agent's prompt, its tools' output and an answer, with room for some turns


@dataclass(frozen=True, slots=True)
class Preset:
    """`kv_tokens` over all sessions and slots for `expert_layers` whole layers are what it has at least where they fit;
    `kv_grows`, `experts_grow`: whether there may be more of each. `kv_first`: KV takes its half before experts grow."""

    kv_tokens: int
    expert_layers: int
    kv_grows: bool
    experts_grow: bool
    kv_first: bool
    about: str


PRESETS = {
    "auto": Preset(AGENT_KV_TOKENS, 1, True, True, False, "a window worth having, then experts"),
    "minimum": Preset(4 << 10, 1, False, False, False, "KV 4k, one layer of experts"),
    "chat": Preset(10 << 10, 1, False, True, False, "KV 10k, the rest experts"),
    "agent": Preset(AGENT_KV_TOKENS, 2, True, True, True, "KV 50k and as much as helps, two layers of experts or more"),
}
NAMES = tuple(PRESETS)


@dataclass(frozen=True, slots=True)
class Tier:
    """Memory for KV and expert slots together: `slabs`, in which `tokens_per_slab` or `slots_per_slab` fit (0: no slots here).

    `sentinel_tokens` of KV serve nobody; there are `experts` in all, `slots_most` slots may be used, `layer_slots` are those of
    one layer, `slots_least` what one token needs. A request may use `window_tokens`, and `running` of them may be computed at once.
    KV grows to 1/`kv_share` of what is left beside slots; its floor alone may take 3/4 of that.
    """

    slabs: int
    tokens_per_slab: int
    sentinel_tokens: int
    slots_per_slab: int
    experts: int
    slots_most: int
    slots_least: int
    layer_slots: int
    window_tokens: int
    running: int
    kv_share: int = 1

    def kv_slabs(self, tokens: int) -> int:
        return -(-(tokens + self.sentinel_tokens) // self.tokens_per_slab)

    def expert_slabs(self, slots: int) -> int:
        return -(-slots // self.slots_per_slab) if slots else 0

    def kv_tokens(self, slabs: int) -> int:
        return max(0, slabs * self.tokens_per_slab - self.sentinel_tokens)


def share(name: str, tier: Tier, kv_tokens: int | None = None, moe_slots: int | None = None) -> tuple[int, int]:
    """(KV tokens, expert slots) of the preset `name`; sizes that are given stay as they are, whether they fit or not.

    Without given sizes at least 1 token and one token's experts, and beyond that never more than fits.
    """
    preset = PRESETS[name]
    most = min(preset.kv_tokens, tier.window_tokens * (1 if name == "auto" else tier.running))
    floor = kv_tokens or most
    least = min(tier.slots_most, max(tier.slots_least, preset.expert_layers * tier.layer_slots))
    slots = moe_slots or _slots(preset, tier, floor, least, given=kv_tokens is not None)
    if kv_tokens is not None:
        return kv_tokens, slots
    left = max(0, tier.slabs - tier.expert_slabs(slots))
    tokens = min(floor, tier.kv_tokens(left if tier.kv_share == 1 else left * 3 // 4))
    if preset.kv_grows:
        tokens = max(tokens, min(tier.window_tokens, tier.kv_tokens(left // tier.kv_share)))
    return max(1, tokens), slots


def _slots(preset: Preset, tier: Tier, kv_floor: int, least: int, given: bool) -> int:
    """As many slots as the preset wants and KV's floor leaves."""
    if not tier.slots_most:
        return 0
    wanted = tier.slots_most if preset.experts_grow else least
    kv = tier.kv_slabs(kv_floor)
    if preset.kv_first and not given:
        kv = max(kv, min(tier.slabs // 2, tier.kv_slabs(tier.window_tokens)))
    if tier.kv_share > 1 and not given:
        kv = -(-kv * 4 // 3)
    fitting = max(0, tier.slabs - kv) * tier.slots_per_slab
    if fitting >= least:
        return min(wanted, fitting)
    if given:  # KV was asked for: experts get what it leaves
        return min(wanted, max(tier.slots_least, fitting))
    half = tier.slabs // 2 * tier.slots_per_slab
    return min(wanted, max(tier.slots_least, half))

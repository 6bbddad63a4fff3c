"""Plans of one model on two kinds of machine, for tests of how memory is shared out."""

from __future__ import annotations

from engine.memory.geometry import Geometry
from engine.memory.hardware import Hardware
from engine.memory.plan import Plan, Settings
from engine.memory.planner import plan

GIB = 1 << 30
MODEL = Geometry(
    vocab_size=49152,
    hidden_size=576,
    layers=30,
    attention_layers=30,
    kv_heads=3,
    head_dim=64,
    state_layer_bytes=(),
    moe_layers=30,
    experts=64,
    top_k=2,
    expert_width=1536,
    expert_bytes=5308416,
    bank_bytes=30 * 64 * 5308416,
    dense_bytes=120 << 20,
    max_window_tokens=131072,
)
TIERS = {
    "disk": {"available": 12 * GIB, "host_memory": 4 * GIB},
    "device": {"available": 64 * GIB, "device": "emulated", "device_memory": 6 * GIB, "moe_backend": "hybrid"},
}


def make(available=64 * GIB, geometry=MODEL, **settings) -> Plan:
    return plan(Hardware(available, 4), geometry, Settings(**settings), "toy")

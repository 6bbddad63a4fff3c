"""csrc/cpu/module.cpp: operations on addresses of checked arrays; see cpu.py for shapes."""

class Batch: ...

def batch(
    arena: int,
    arena_bytes: int,
    row_start: int,
    positions: int,
    page_offsets: int,
    seqs: int,
    rows: int,
    pages: int,
    page_tokens: int,
    kv_bf16: bool,
    states: int,
    linear_layers: int,
    snapshot_seq: int,
    snapshot_rows: int,
    snapshot_states: int,
    snapshots: int,
    /,
) -> Batch: ...
def isa() -> str: ...
def set_isa(name: str, /) -> None: ...
def set_threads(count: int, /) -> None: ...
def thread_count() -> int: ...
def pack(w: int, n: int, k: int, format: int, out: int, /) -> None: ...
def unpack(packed: int, n: int, k: int, format: int, out: int, /) -> None: ...
def embedding(ids: int, rows: int, packed: int, n: int, k: int, format: int, out: int, /) -> None: ...
def linear(x: int, rows: int, w: int, format: int, n: int, k: int, bias: int, out: int, /) -> None: ...
def rmsnorm(x: int, rows: int, dim: int, w: int, eps: float, gate: int, out: int, /) -> None: ...
def add_rmsnorm(residual: int, delta: int, rows: int, dim: int, w: int, eps: float, out: int, /) -> None: ...
def silu_mul(gate_up: int, rows: int, width: int, out: int, /) -> None: ...
def sigmoid_mul(x: int, gate: int, rows: int, dim: int, gate_dim: int, onto: bool, out: int, /) -> None: ...
def place_heads(
    batch: Batch,
    layer: int,
    x: int,
    columns: int,
    key_column: int,
    heads: int,
    kv_heads: int,
    dim: int,
    cos: int,
    sin: int,
    table_rows: int,
    half: int,
    q_norm: int,
    q_eps: float,
    k_norm: int,
    k_eps: float,
    q: int,
    /,
) -> None: ...
def attention(
    batch: Batch,
    layer: int,
    q: int,
    heads: int,
    kv_heads: int,
    dim: int,
    scale: float,
    window: int,
    sinks: int,
    out: int,
    /,
) -> None: ...
def conv(
    batch: Batch, layer: int, x: int, channels: int, w: int, width: int, state_offset: int, out: int, /
) -> None: ...
def delta_gates(ba: int, rows: int, heads: int, decay: int, dt_bias: int, g: int, beta: int, /) -> None: ...
def delta_rule(
    batch: Batch,
    layer: int,
    q: int,
    k: int,
    v: int,
    g: int,
    beta: int,
    k_heads: int,
    k_dim: int,
    v_heads: int,
    v_dim: int,
    out: int,
    /,
) -> None: ...
def route(logits: int, rows: int, experts: int, top_k: int, renormalise: bool, ids: int, weights: int, /) -> None: ...
def experts(
    x: int,
    ids: int,
    addresses: int,
    rows: int,
    top_k: int,
    experts: int,
    hidden: int,
    width: int,
    format: int,
    down_offset: int,
    bias_offset: int,
    activation: int,
    weights: int,
    out: int,
    /,
) -> None: ...
def expert_outputs(
    x: int,
    ids: int,
    addresses: int,
    rows: int,
    top_k: int,
    experts: int,
    hidden: int,
    width: int,
    format: int,
    down_offset: int,
    bias_offset: int,
    activation: int,
    parts: int,
    /,
) -> None: ...
def combine(parts: int, weights: int, rows: int, top_k: int, hidden: int, out: int, /) -> None: ...
def set_activations(bf16: bool, /) -> None: ...
def activations() -> bool: ...
def has_bf16() -> bool: ...
def fma_loop(count: int, /) -> float: ...
def dot_loop(count: int, /) -> float: ...
def read_loop(data: int, bytes: int, /) -> int: ...

class Curve:
    def __init__(
        self,
        layers: int,
        experts: int,
        half_life_rows: float,
        half_life_steps: float,
        counted_rows: int,
        /,
    ) -> None: ...
    def note(self, layer: int, routed: object, /) -> None: ...
    def misses(self, slots: int, /) -> float: ...
    def asked(self) -> float: ...
    def steps(self) -> int: ...

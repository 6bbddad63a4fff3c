import json
import re
import resource
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import BadRequest, DoesNotFit, Unsupported
from engine.memory import amounts, planner
from engine.memory.hardware import Hardware, read_hardware
from engine.memory.plan import Settings, build_pools
from tests.engine.memory.plans import GIB, MODEL

TOY = replace(MODEL, experts=8, bank_bytes=30 * 8 * MODEL.expert_bytes, max_window_tokens=65536)
HYBRID = replace(TOY, attention_layers=10, state_layer_bytes=(2_200_000,) * 20)
LINEAR = replace(TOY, attention_layers=0, state_layer_bytes=(2_200_000,) * 30)


def make(available=16 * GIB, geometry=TOY, **settings):
    return planner.plan(Hardware(available, 4), geometry, Settings(**settings), "toy")


def test_default_plan_takes_the_whole_window_when_it_fits():
    plan = make()
    assert plan.fits and plan.window_tokens == 65536 and plan.kv_tokens == 65536
    assert plan.tenants["bank"] == TOY.bank_bytes and plan.tenants["dense"] == TOY.dense_bytes
    assert plan.tenants["kv"] >= 65536 * TOY.kv_values_per_token * 2
    assert plan.tenants["workspace"] > 0


def test_default_kv_is_what_an_agent_needs_and_half_of_what_is_left_beyond_that():
    for available, least, most in ((2.5, 3, 3), (3, 3, 3), (4.2, 2, 2)):
        plan = make(available=int(available * GIB))
        left = int(available * GIB) - sum(plan.tenants[t] for t in ("dense", "bank", "workspace", "runtime"))
        assert plan.fits and plan.window_tokens == plan.kv_tokens < 65536
        assert left * least // 4 - 3 * plan.slab_bytes <= plan.tenants["kv"] <= left * most // 4
    assert make(available=int(3.4 * GIB)).kv_tokens >= 50 << 10


@pytest.mark.parametrize("tokens", [1, 1000, 4096, 65536, 100_000])
@pytest.mark.parametrize("geometry", [TOY, HYBRID], ids=["attention", "hybrid"])
def test_asked_for_kv_is_honoured_or_refused(tokens, geometry):
    plan = make(geometry=geometry, kv_tokens=tokens)
    assert plan.fits and plan.kv_tokens == tokens and plan.window_tokens == min(tokens, 65536)
    assert build_pools(plan).pages.capacity * plan.page_tokens >= tokens
    refused = make(geometry=geometry, kv_tokens=50_000_000)
    assert not refused.fits and refused.kv_tokens == 50_000_000
    with pytest.raises(DoesNotFit):
        refused.require()


def test_without_attention_tokens_are_counted_in_pages_that_cost_next_to_nothing():
    plan = make(geometry=LINEAR)
    assert plan.fits and plan.kv_tokens == plan.window_tokens == 65536
    assert plan.tenants["kv"] < 65536 * 128 and plan.tenants["state"] >= plan.states * LINEAR.state_bytes
    assert build_pools(plan).pages.capacity * plan.page_tokens >= 65536
    refused = make(available=GIB, geometry=LINEAR, kv_tokens=1000)
    assert not refused.fits and len(refused.ways_out) == 3


def test_a_refusal_has_the_shortfall_and_three_ways_that_work():
    plan = make(available=4 * GIB, kv_tokens=1_000_000)
    assert not plan.fits and len(plan.ways_out) == 3
    assert plan.shortfall_bytes == plan.total_bytes - 4 * GIB
    assert re.search(r"short$", plan.verdict)
    smaller = int(re.search(r"--kv (\d+)", plan.ways_out[0]).group(1))
    assert make(available=4 * GIB, kv_tokens=smaller).fits
    page = plan.page_tokens * 20
    assert not make(available=4 * GIB, kv_tokens=smaller + page).fits


def test_sixty_gigabytes_of_experts_on_sixteen_are_refused():
    big = replace(TOY, bank_bytes=60 * GIB)
    plan = make(available=15 * GIB, geometry=big)
    assert not plan.fits and plan.shortfall_bytes > 45 * GIB and len(plan.ways_out) == 3
    assert not any("--kv" in way for way in plan.ways_out), "no KV size helps here"


@given(
    available=st.integers(1, 64 * GIB),
    hybrid=st.booleans(),
    kv=st.none() | st.integers(1, 200_000),
    slots=st.none() | st.integers(1, 200),
    running=st.integers(1, 16),
    dtype=st.sampled_from(["bf16", "f32"]),
)
def test_pools_of_any_plan_hold_what_it_says(available, hybrid, kv, slots, running, dtype):
    plan = make(
        available,
        HYBRID if hybrid else TOY,
        kv_tokens=kv,
        moe_backend="offload",
        moe_slots=slots,
        max_running=running,
        kv_dtype=dtype,
    )
    assert plan.fits == (sum(plan.tenants.values()) <= available)
    assert plan.page_tokens in (16, 32, 64) and plan.page_bytes <= plan.slab_bytes
    pools = build_pools(plan)
    assert pools.pages.capacity * plan.page_tokens >= plan.kv_tokens >= 1
    assert pools.slots is not None and pools.slots.capacity >= plan.moe_slots
    if slots:
        assert plan.moe_slots == slots
    if hybrid:
        assert pools.states.capacity >= plan.states + plan.checkpoints >= running + 4
    arena = sum(plan.tenants[t] for t in ("kv", "state", "checkpoints", "experts"))
    assert arena + plan.room_slabs * plan.slab_bytes == pools.arena.bytes
    assert bool(plan.ways_out) == (not plan.fits)
    assert json.loads(json.dumps(plan.to_json()))["fits"] == plan.fits


def test_checkpoint_cap_is_bounded_by_a_share_of_memory():
    plan = make(available=6 * GIB, geometry=HYBRID)
    left = 6 * GIB - sum(plan.tenants[t] for t in ("dense", "bank", "workspace", "runtime", "state"))
    assert plan.fits and 0 < plan.checkpoint_bytes <= left // 8
    assert make(available=128 * GIB, geometry=HYBRID).checkpoints == 8 * 24
    exact = make(geometry=HYBRID, checkpoint_bytes=7 * plan.state_bytes)
    assert exact.checkpoints == 7


def test_nonsense_settings_are_errors():
    for wrong in ({"kv_tokens": 0}, {"kv_dtype": "fp3"}, {"moe_backend": "magic"}, {"max_running": 0}):
        with pytest.raises(BadRequest):
            make(**wrong)


def test_slots_are_given_where_they_are_used_and_nowhere_else():
    every = TOY.moe_layers * TOY.experts
    for device, backend, slots in [
        ("cpu", "auto", 0),
        ("cpu", "cpu", 0),
        ("cpu", "fused", 0),
        ("cpu", "offload", 7),
        ("cpu", "hybrid", 7),
        ("emulated", "cpu", 0),
        ("emulated", "offload", 7),
        ("emulated", "hybrid", 7),
        ("emulated", "auto", 7),
    ]:
        plan = make(available=64 * GIB, device=device, moe_backend=backend, moe_slots=7)
        assert (plan.moe_slots, plan.bank) == (slots, "ram"), (device, backend)
        assert plan.moe_backend == ("cpu" if (device, backend) == ("cpu", "auto") else backend)
        assert bool(plan.tenants["experts"]) == bool(slots)
    assert make(available=64 * GIB, device="emulated", moe_backend="fused").moe_slots == every
    with pytest.raises(Unsupported, match="a slot for each of 240 experts, not 7"):
        make(device="emulated", moe_backend="fused", moe_slots=7)


def test_less_memory_than_the_experts_take_means_reading_them_from_disk():
    budget = 40 * TOY.expert_bytes + 100
    plan = make(available=GIB * 3 // 2, host_memory=budget)
    assert plan.fits and (plan.moe_backend, plan.bank, plan.moe_slots) == ("offload", "disk", 40)
    assert plan.tenants["bank"] == 0 and plan.tenants["experts"] >= 40 * TOY.expert_bytes
    assert make(host_memory=budget, moe_slots=9).moe_slots == 9
    assert make(host_memory=TOY.bank_bytes).bank == "ram"
    for backend in ("cpu", "fused", "hybrid"):
        with pytest.raises(Unsupported, match="needs them all in RAM"):
            make(host_memory=budget, moe_backend=backend)
    with pytest.raises(Unsupported, match="room for 40 expert slots, not for 41"):
        make(host_memory=budget, moe_slots=41)
    with pytest.raises(Unsupported, match="1 expert slots, and one token needs 2") as caught:
        make(host_memory=TOY.expert_bytes)
    enough = int(re.search(r"--host-memory (\d+)", caught.value.hint).group(1))
    assert make(host_memory=enough).moe_slots == TOY.top_k


def test_the_way_out_over_the_disk_fits():
    big = replace(TOY, bank_bytes=60 * GIB, expert_bytes=60 * GIB // 240)
    plan = make(available=15 * GIB, geometry=big, kv_tokens=8192)
    (way,) = [way for way in plan.ways_out if "--host-memory" in way]
    budget = int(re.search(r"--host-memory (\d+)", way).group(1))
    assert make(available=15 * GIB, geometry=big, kv_tokens=8192, host_memory=budget).fits


@given(memory=st.integers(1, 4 * GIB), kv=st.none() | st.integers(256, 100_000), hybrid=st.booleans())
def test_a_devices_memory_is_never_exceeded_by_a_plan_that_fits(memory, kv, hybrid):
    geometry = HYBRID if hybrid else TOY
    plan = make(64 * GIB, geometry, device="emulated", device_memory=memory, kv_tokens=kv, moe_backend="hybrid")
    on_device = sum(plan.tenants[t] for t in ("dense", "experts", "workspace", "kv", "state"))
    assert plan.fits == (on_device <= memory)
    assert plan.moe_slots >= TOY.top_k and (kv is None or plan.kv_tokens == kv)
    if plan.fits and plan.moe_slots < TOY.moe_layers * TOY.experts and kv is not None:
        assert memory - on_device < plan.slab_bytes, "what KV leaves goes to experts"
    if not plan.fits:
        assert "on the device" in plan.verdict and plan.shortfall_bytes == on_device - memory


def test_parse_bytes():
    sizes = ("4096", "512k", "3m", "8g", "1.5G")
    assert [amounts.parse_bytes(t) for t in sizes] == [4096, 512 << 10, 3 << 20, 8 << 30, 3 << 29]
    for wrong in ("", "g", "0", "-4", "8x", "1e9", "1.2.3m"):
        with pytest.raises(ValueError):
            amounts.parse_bytes(wrong)


def test_parse_tokens():
    assert [amounts.parse_tokens(t) for t in ("1", "64k", "64K", "2m")] == [1, 65536, 65536, 2 << 20]
    for wrong in ("", "k", "0", "-4", "64q", "6.5k", "64kk"):
        with pytest.raises(ValueError):
            amounts.parse_tokens(wrong)


def test_hardware_reads_the_smallest_bound(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:    64 kB\n")
    assert read_hardware(meminfo, tmp_path).available_bytes == 65536
    (tmp_path / "memory.max").write_text("50000\n")
    (tmp_path / "memory.current").write_text("20000\n")
    hardware = read_hardware(meminfo, tmp_path)
    assert hardware.available_bytes == 30000 and "container" in hardware.limited_by
    (tmp_path / "memory.max").write_text("max\n")
    assert read_hardware(meminfo, tmp_path).available_bytes == 65536


@pytest.fixture
def model_dir(tmp_path):
    """A whole, tiny model directory: only sizes matter to the planner."""
    geometry = replace(TOY, layers=1, attention_layers=1, moe_layers=1, bank_bytes=8192, expert_bytes=4096, experts=2)
    geometry = replace(geometry, dense_bytes=64)
    directory = tmp_path / "models" / "toy"
    directory.mkdir(parents=True)
    for name, content in {
        "tokenizer.json": b"{}",
        "chat_template.jinja": b"",
        "config.json": b"{}",
        "dense.bin": bytes(64),
        "experts-000.bin": bytes(8192),
    }.items():
        (directory / name).write_bytes(content)
    bank = {"layer": 0, "file": "experts-000.bin", "bytes": 8192, "experts": 2, "stride": 4096, "format": "bf16"}
    manifest = {
        "format": "ftw/1",
        "name": "toy",
        "arch": "mixtral",
        "created_by": "test",
        "kv_dtype": "f32",
        "geometry": geometry.to_json(),
        "dense": {"file": "dense.bin", "bytes": 64, "crc32": 0, "tensors": {}},
        "banks": [{**bank, "crc32": 0}],
        "eos_token_ids": [2],
        "dialect": "hermes",
        "thinking": False,
        "quality": "toy",
        "window_tokens": 4096,
    }
    (directory / "ftw.json").write_text(json.dumps(manifest))
    return directory


def plan_command(model_dir, *args, **kwargs):
    code = "import sys; from engine.memory import plan_command; rc = plan_command.main(sys.argv[1:]);"
    code += "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; sys.exit(rc)"
    argv = [sys.executable, "-c", code, "--models-dir", str(model_dir.parent), "--json", *args]
    return subprocess.run(argv, capture_output=True, text=True, **kwargs)


def test_command_prints_the_plan_without_torch(model_dir):
    done = plan_command(model_dir, "--model", "toy", "--kv", "1k")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["schema"] == "ft.engine-plan/1" and data["kv_tokens"] == 1024 and data["kv_dtype"] == "f32"
    assert plan_command(model_dir, "--model", "toy").stdout and planner.plan_model(model_dir, Settings()).fits


def test_command_refuses_with_the_right_code(model_dir):
    absent = plan_command(model_dir, "--model", "nope")
    assert absent.returncode == 3 and json.loads(absent.stdout)["error"]["code"].startswith("FT-E0404")
    (model_dir / "dense.bin").write_bytes(b"")
    broken = plan_command(model_dir, "--model", "toy")
    assert broken.returncode == 5 and "dense.bin" in json.loads(broken.stdout)["error"]["message"]


def test_command_respects_a_process_limit(model_dir):
    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (150 << 20, 150 << 20))

    done = plan_command(model_dir, "--model", "toy", preexec_fn=limit)
    data = json.loads(done.stdout)
    assert done.returncode == 5 and not data["fits"] and data["available_bytes"] == 150 << 20
    assert data["limited_by"] == "ulimit -d" and len(data["ways_out"]) == 3


def ways_settings(way):
    """The settings that a way out names; None for one that is no `ft serve` of the same model."""
    if not way.startswith("ft serve --model toy"):
        return None
    words = re.sub(r"\(.*\)", "", way).split()[4:]
    names = {"--kv": "kv_tokens", "--max-running-requests": "max_running"}
    found = {names.get(flag, flag[2:].replace("-", "_")): value for flag, value in pairs_of(words)}
    return {name: int(value) if value.isdecimal() else value for name, value in found.items()}


def pairs_of(words):
    return zip(words[::2], words[1::2], strict=True)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_running": 99_999_999}, "--max-running-requests 8"),
        ({"max_running": 99_999_999, "kv_tokens": 4096}, "--kv 4096 --max-running-requests 8"),
        ({"chunk_tokens": 50_000_000}, "--chunk-tokens 512"),
        ({"kv_tokens": 50_000_000}, "--kv "),
        ({"device": "emulated", "device_memory": 64 << 20}, "--device-memory "),
        ({"device": "emulated", "device_memory": 64 << 20, "moe_backend": "cpu"}, "--device-memory "),
        ({"moe_backend": "offload", "moe_slots": 10_000}, "--moe-backend offload"),
    ],
)
@pytest.mark.parametrize("geometry", [TOY, HYBRID, LINEAR], ids=["attention", "hybrid", "linear"])
def test_every_way_out_fits_and_the_cause_is_named(settings, named, geometry):
    plan = make(available=8 * GIB, geometry=geometry, **settings)
    if plan.fits:
        pytest.skip("costs nothing in this geometry")
    assert named in plan.ways_out[0]
    offered = [ways_settings(way) for way in plan.ways_out]
    for changed in [way for way in offered if way is not None]:
        assert make(available=8 * GIB, geometry=geometry, **changed).fits, changed
    if "device_memory" in settings:
        assert not any("close other programs" in way for way in plan.ways_out)


def test_the_plan_takes_what_serve_takes(model_dir):
    flags = [
        "--activations",
        "f32",
        "--device",
        "cpu",
        "--host-memory",
        "1.5g",
        "--threads",
        "2",
        "--anticipate",
        "off",
    ]
    assert plan_command(model_dir, "--model", "toy", *flags).returncode == 0
    for flag, value in (("--host-memory", "0"), ("--host-memory", "much"), ("--kv", "0")):
        wrong = plan_command(model_dir, "--model", "toy", flag, value)
        assert wrong.returncode == 2 and flag in wrong.stderr and "parse_" not in wrong.stderr

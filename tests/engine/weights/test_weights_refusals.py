"""What an import refuses: numbers that no model has, files that contradict themselves, and damage, each by one clear sentence."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from engine.errors import WeightsError
from engine.weights.commands import main
from engine.weights.manifest import load_manifest
from engine.weights.safetensors import SafetensorsSource
from engine.weights.shapes import dense_shapes
from engine.weights.writer import staged

HIDDEN, HEADS, KV, DIM, EXPERTS, WIDTH, LAYERS = 64, 4, 2, 16, 4, 32, 3
TOKENS = ["a", "b", "ab", "<e>"]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
P = "qwen3moe."
COUNTS: dict[str, Any] = {
    "context_length": 128,
    "embedding_length": HIDDEN,
    "block_count": LAYERS,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV,
    "attention.key_length": DIM,
    "expert_count": EXPERTS,
    "expert_used_count": 2,
    "expert_feed_forward_length": WIDTH,
}


def _gguf(path: Path, change: dict[str, Any] | None = None, tensors: bool = True, drop: str = "") -> None:
    """A whole small model, with `change` put over its metadata; None leaves a key out."""
    kept: dict[str, Any] = {P + key: value for key, value in COUNTS.items()}
    kept |= {P + "attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.chat_template": TEMPLATE}
    kept |= {"tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.eos_token_id": 3}
    kept |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", **(change or {})}
    writer = gguf.GGUFWriter(path, "qwen3moe")
    for key, value in kept.items():
        if isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif value is not None:
            writer.add_string(key, value)
    shapes = {"token_embd": (len(TOKENS), HIDDEN), "output_norm": (HIDDEN,), "output": (len(TOKENS), HIDDEN)}
    for layer in range(LAYERS):
        block = {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,), "attn_q_norm": (DIM,), "attn_k_norm": (DIM,)}
        block |= {"attn_q": (HEADS * DIM, HIDDEN), "attn_k": (KV * DIM, HIDDEN), "attn_v": (KV * DIM, HIDDEN)}
        block |= {"attn_output": (HIDDEN, HEADS * DIM), "ffn_gate_inp": (EXPERTS, HIDDEN)}
        block |= {f"ffn_{part}_exps": (EXPERTS, WIDTH, HIDDEN) for part in ("gate", "up")}
        block |= {"ffn_down_exps": (EXPERTS, HIDDEN, WIDTH)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    for name, shape in shapes.items() if tensors else ():
        if name != drop:
            writer.add_tensor(f"{name}.weight", np.full(shape, 0.5, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "head_dim": DIM,
    "num_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": WIDTH,
    "vocab_size": len(TOKENS),
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "eos_token_id": 3,
}


def _directory(folder: Path, change: dict[str, Any] | None = None, drop: str = "") -> None:
    folder.mkdir()
    shapes: dict[str, tuple[int, ...]] = dense_shapes(CONFIG)
    for layer in range(CONFIG["num_hidden_layers"]):
        for expert in range(EXPERTS):
            prefix = f"model.layers.{layer}.mlp.experts.{expert}"
            shapes |= {f"{prefix}.{part}_proj.weight": (WIDTH, HIDDEN) for part in ("gate", "up")}
            shapes[f"{prefix}.down_proj.weight"] = (HIDDEN, WIDTH)
    tensors = {name: torch.full(shape, 0.5) for name, shape in shapes.items() if not drop or drop not in name}
    save_file(tensors, folder / "model.safetensors")
    config = {key: value for key, value in {**CONFIG, **(change or {})}.items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(config))
    Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(TOKENS)}, merges=[("a", "b")])).save(
        str(folder / "tokenizer.json")
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def _import(source: Path, models_dir: Path) -> int:
    return main(["import", str(source), "--name", "x", "--models-dir", str(models_dir), "--format", "bf16"])


def _refused(source: Path, capsys: pytest.CaptureFixture[str], *facts: str) -> None:
    """Imported in no time to an error with these facts, and nothing is left."""
    models_dir = source.parent / "models"
    started = time.monotonic()
    assert _import(source, models_dir) == 1
    assert time.monotonic() - started < 60
    said = capsys.readouterr().err
    assert all(fact in said for fact in (str(source), *facts)), said
    assert "Traceback" not in said and "numpy" not in said and "dtype" not in said
    assert not models_dir.exists() or not list(models_dir.iterdir())


def test_the_whole_models_are_taken(tmp_path: Path) -> None:
    _gguf(tmp_path / "m.gguf")
    _directory(tmp_path / "hf")
    for source in ("m.gguf", "hf"):
        models_dir = tmp_path / f"of-{source}"
        assert _import(tmp_path / source, models_dir) == 0
        assert load_manifest(models_dir / "x").eos_token_ids == (3,)
        assert [path.name for path in models_dir.iterdir()] == ["x"], "no lock stays behind"


@pytest.mark.parametrize("value", [0, 7, 2**32 - 1])
@pytest.mark.parametrize("key", [*COUNTS])
def test_counts_that_the_tensors_contradict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: int
) -> None:
    if (key, value) == ("context_length", 7):
        pytest.skip("a short window is no contradiction")
    _gguf(tmp_path / "m.gguf", {P + key: value})
    _refused(tmp_path / "m.gguf", capsys, P + key, str(value))


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count", "expert_count"])
def test_metadata_of_another_type_or_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str) -> None:
    for value in ("many", 1.5, None, ["a"], [True]):
        _gguf(tmp_path / "m.gguf", {P + key: value})
        _refused(tmp_path / "m.gguf", capsys, P + key)


@pytest.mark.parametrize("value", [0, -1, 7, 10**9, "many", 2.5, True, [3], {}, "absent"])
@pytest.mark.parametrize(
    "key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "num_experts", "moe_intermediate_size"]
)
def test_numbers_of_config_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: Any) -> None:
    _directory(tmp_path / "hf", {key: value})
    _refused(tmp_path / "hf", capsys, "config.json", key)


@pytest.mark.parametrize(
    "change",
    [
        {"num_key_value_heads": 3},
        {"num_experts_per_tok": 5},
        {"head_dim": 8},
        {"sliding_window": 0},
        {"sliding_window": "wide"},
        {"max_position_embeddings": 0},
        {"rms_norm_eps": 0},
        {"rms_norm_eps": "small"},
        {"rope_theta": "big"},
        {"rope_scaling": 5},
        {"rope_parameters": {"rope_theta": -1}},
        {"partial_rotary_factor": 2},
        {"partial_rotary_factor": "half"},
        {"rope_scaling": {"factor": "four"}},
        {"layer_types": "x"},
        {"layer_types": ["full_attention"] * 9},
        {"mlp_only_layers": [None]},
        {"vocab_size": 5},
        {"eos_token_id": "end"},
    ],
)
def test_more_of_config_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]) -> None:
    _directory(tmp_path / "hf", change)
    key = next(iter(change))
    named = {"rope_parameters": "rope_theta", "rope_scaling": "", "eos_token_id": "'end'"}
    _refused(tmp_path / "hf", capsys, "config.json", named.get(key, key))


@pytest.mark.parametrize(
    "missing", ["embed_tokens", "layers.1.mlp.gate.", "layers.0.self_attn.q_proj", ".experts.", ".experts.3.down_proj"]
)
def test_missing_tensors_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: str) -> None:
    _directory(tmp_path / "hf", drop=missing)
    models_dir = tmp_path / "models"
    assert _import(tmp_path / "hf", models_dir) == 1
    said = capsys.readouterr().err
    assert "lacks model." in said and missing in said


def test_a_gguf_without_a_tensor_or_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _gguf(tmp_path / "m.gguf", drop="blk.1.attn_v")
    assert _import(tmp_path / "m.gguf", tmp_path / "models") == 1
    assert "lacks model.layers.1.self_attn.v_proj.weight" in capsys.readouterr().err
    _gguf(tmp_path / "m.gguf", tensors=False)
    _refused(tmp_path / "m.gguf", capsys, P + "block_count")


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"tokenizer.ggml.merges": ["a zz"]}, "'a zz'"),
        ({"tokenizer.ggml.merges": ["b a"]}, "'b a'"),
        ({"tokenizer.ggml.merges": ["ab"]}, "'ab'"),
        ({"tokenizer.ggml.merges": [1]}, "merges has 1"),
        ({"tokenizer.ggml.merges": None}, "tokenizer.ggml.merges"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": [1, 2, 3, 4]}, "tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.token_type": [1]}, "token_type"),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [0.5]}, "scores"),
        ({"tokenizer.ggml.eos_token_id": 99}, "99"),
        ({"tokenizer.ggml.eos_token_id": "x"}, "'x'"),
        ({"tokenizer.chat_template": "{% fxr"}, "does not compile"),
        ({"tokenizer.chat_template": 5}, "not a text"),
    ],
)
def test_vocabularies_and_templates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], fact: str
) -> None:
    _gguf(tmp_path / "m.gguf", change)
    _refused(tmp_path / "m.gguf", capsys, fact)


@pytest.mark.parametrize(
    ("file", "content", "fact"),
    [
        ("chat_template.jinja", b"{% fxr", "does not compile"),
        ("chat_template.jinja", b"\xff\xfe", "not UTF-8"),
        ("tokenizer.json", b"\xff\xfe", "not UTF-8"),
        ("tokenizer.json", b"{}", "not a tokenizer"),
        ("generation_config.json", b'{"eos_token_id": "end"}', "'end'"),
    ],
)
def test_text_files_of_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, content: bytes, fact: str
) -> None:
    _directory(tmp_path / "hf")
    (tmp_path / "hf" / file).write_bytes(content)
    _refused(tmp_path / "hf", capsys, file, fact)


def _shifted(data: bytes) -> bytes:
    """The last tensor of the list lies four bytes further."""
    name = f"blk.{LAYERS - 1}.ffn_down_exps.weight".encode()
    at = data.index(name) + len(name) + 4 + 3 * 8 + 4
    offset = int.from_bytes(data[at : at + 8], "little")
    return data[:at] + (offset + 4).to_bytes(8, "little") + data[at + 8 :] + bytes(4)


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (lambda data: data + b"garbage", "bytes follow its last tensor"),
        (_shifted, "no multiple of 32"),
        (
            lambda data: data.replace(TEMPLATE.encode(), b"\xff" * len(TEMPLATE)),
            "'tokenizer.chat_template' is not UTF-8",
        ),
        (lambda data: data[:-1000], "is damaged or cut"),
        (lambda data: data[:200], "is damaged or cut"),
        (lambda data: data[:8] + b"\xff" * 16 + data[24:], "is damaged or cut"),
    ],
)
def test_damaged_gguf_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[bytes], bytes], fact: str
) -> None:
    file = tmp_path / "m.gguf"
    _gguf(file)
    file.write_bytes(damage(file.read_bytes()))
    _refused(file, capsys, fact)


@pytest.mark.parametrize("name", ["../../../../etc/passwd", "/etc/passwd", "a/b.safetensors", "..", "", 5])
def test_an_index_opens_nothing_outside_its_folder(tmp_path: Path, name: Any) -> None:
    opened: list[Path] = []
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(WeightsError, match="is not a plain file name"):
        SafetensorsSource(tmp_path, open=opened.append)
    assert opened == []


def test_a_damaged_synthetic_model_is_made_again_by_synth(tmp_path: Path) -> None:
    command = ["synth", "--like", "qwen3-30b-a3b", "--layers", "1", "--vocab", "300", "--name", "fake"]
    assert main([*command, "--models-dir", str(tmp_path), "--format", "q4_0"]) == 0
    manifest = tmp_path / "fake" / "ftw.json"
    hint = "ft models synth --like qwen3-30b-a3b --name fake --force"
    (tmp_path / "fake" / "dense.bin").write_bytes(b"")
    with pytest.raises(WeightsError) as refused:
        load_manifest(tmp_path / "fake")
    assert hint in refused.value.hint
    manifest.write_bytes(manifest.read_bytes()[:-200])
    with pytest.raises(WeightsError) as refused:
        load_manifest(tmp_path / "fake")
    assert hint in refused.value.hint
    shutil.rmtree(tmp_path / "fake")


def test_synth_of_absurd_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flag, key in (("--layers", "num_hidden_layers"), ("--vocab", "vocab_size")):
        command = ["synth", "--like", "qwen3-30b-a3b", flag, "1000000000", "--name", "x", "--models-dir", str(tmp_path)]
        assert main(command) == 2
        assert f"{key} is 1000000000" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["ls"], ["show", "x"], ["import", "y", "--name", "x"], ["tiny-hybrid"]])
def test_a_models_folder_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "below"):
        assert main([*command, "--models-dir", str(folder)]) == 2
        assert f"{file} is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "code", "fact"),
    [
        (["import", "y", "--name", "n" * 300], 2, "at most 200"),
        (["import", "y" * 300, "--name", "n"], 3, "does not exist"),
        (["convert", "y" * 300, "n"], 3, "There is no model"),
        (["show", "y" * 300], 3, "There is no model"),
        (["show", "/" + "y" * 300], 3, "There is no model"),
    ],
)
def test_long_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], code: int, fact: str
) -> None:
    assert main([*command, "--models-dir", str(tmp_path)]) == code
    assert fact in capsys.readouterr().err


def _write_repeatedly(models_dir: Path, marks: Path) -> None:
    for _ in range(30):
        try:
            with staged(models_dir, "x") as folder:
                (marks / "inside").mkdir()  # fails when another is inside
                (folder / "ftw.json").write_text("{}")
                (marks / "inside").rmdir()
        except FileExistsError:
            (marks / "together").touch()


def test_one_writer_at_a_time_and_no_lock_afterwards(tmp_path: Path) -> None:
    models_dir, marks = tmp_path / "models", tmp_path / "marks"
    marks.mkdir()
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_repeatedly, args=(models_dir, marks)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
        assert writer.exitcode == 0
    assert list(marks.iterdir()) == []
    assert [path.name for path in models_dir.iterdir()] == ["x"]

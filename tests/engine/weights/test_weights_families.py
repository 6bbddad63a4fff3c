"""A model directory resolves by itself: architecture, number format, dialect, thinking and template switch, one family at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GptOssConfig,
    LlamaConfig,
    MixtralConfig,
    Qwen3_5MoeTextConfig,
    Qwen3MoeConfig,
)

from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.prompt.conversation import Conversation, Message, Text, Thinking, Tool, ToolCall, ToolResult
from engine.prompt.language import Language
from engine.prompt.output import TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart
from engine.weights.commands import main
from engine.weights.gguf_tokenizer import add_special_tokens
from engine.weights.manifest import Manifest, load_manifest
from tests.engine.prompt.test_prompt_harmony import CONTROL, TEMPLATE

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "vocab_size": 288,
}
MOE = {"num_experts_per_tok": 2, "num_experts": 4, "moe_intermediate_size": 32}
THINK = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
HERMES = (
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
)
XML = (
    "<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n"
    "{{ v if v is string else v | tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"
)


def chatml(call: str, keep: str, prompt: str) -> str:
    """A template of the Qwen family: `keep` decides when past thinking stays, `prompt` follows the assistant's header."""
    return f"""{{%- set ns = namespace(last_query_index=0) %}}
{{%- for m in messages %}}{{% if m.role == 'user' %}}{{% set ns.last_query_index = loop.index0 %}}{{% endif %}}{{% endfor %}}
{{%- if tools %}}<|im_start|>system
{{% for t in tools %}}{{{{ t | tojson }}}}
{{% endfor %}}<|im_end|>
{{% endif %}}
{{%- for m in messages %}}
{{%- if m.role == 'tool' %}}<|im_start|>user
<tool_response>
{{{{ m.content }}}}
</tool_response><|im_end|>
{{% else %}}<|im_start|>{{{{ m.role }}}}
{{% if m.reasoning_content and ({keep}) %}}<think>
{{{{ m.reasoning_content }}}}
</think>

{{% endif %}}{{{{ m.content }}}}{{% for c in m.tool_calls or [] %}}
{call}{{% endfor %}}<|im_end|>
{{% endif %}}
{{%- endfor %}}
{{%- if add_generation_prompt %}}<|im_start|>assistant
{prompt}{{% endif %}}"""


LATER = "loop.index0 > ns.last_query_index"
OFF = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
OPEN = (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
)
INST = "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"


@dataclass(frozen=True)
class Family:
    config: Any
    template: str
    tokens: list[str]
    end: str
    speech: tuple[str, bool, str]  # dialect, thinking, template family
    switch: tuple[str, Any] | None = None
    opens: bool = False  # the generation prefix opens the thinking


CHAT = ["<|im_start|>", "<|im_end|>", *THINK]
FAMILIES = {
    "qwen3_moe": Family(Qwen3MoeConfig(**SIZES, **MOE), chatml(HERMES, LATER, OFF), CHAT, "<|im_end|>", ("hermes", True, "qwen3")),
    "qwen3_5_moe": Family(
        Qwen3_5MoeTextConfig(**SIZES, **MOE, shared_expert_intermediate_size=32,
            layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16),
        chatml(XML, f"preserve_thinking or {LATER}", OPEN), CHAT, "<|im_end|>", ("qwen_xml", True, "qwen3.6"), ("preserve_thinking", True), True,
    ),
    "mixtral": Family(MixtralConfig(**SIZES, intermediate_size=32, num_local_experts=4), INST, ["<s>", "</s>"], "</s>", ("hermes", False, "")),
    "llama": Family(LlamaConfig(**SIZES, intermediate_size=96), chatml(HERMES, "false", ""), CHAT[:2], "<|im_end|>", ("hermes", False, "")),
    "gpt_oss": Family(
        GptOssConfig(**SIZES, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
        TEMPLATE, [*CONTROL], "<|return|>", ("harmony", True, "gpt-oss"),
    ),
}  # fmt: skip
TOOLS = (
    Tool("read", "reads", {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    """Every family's directory as Hugging Face has it in bf16, imported without a word about formats or syntax."""
    found = {}
    for name, family in FAMILIES.items():
        folder = tmp_path_factory.mktemp(name)
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(family.config).bfloat16().save_pretrained(folder / "hf")
        tokenizer = byte_tokenizer(family.tokens)
        tokenizer.save(str(folder / "hf" / "tokenizer.json"))
        (folder / "hf" / "chat_template.jinja").write_text(family.template)
        generation = {"eos_token_id": tokenizer.token_to_id(family.end)}
        (folder / "hf" / "generation_config.json").write_text(json.dumps(generation))
        command = ["import", str(folder / "hf"), "--name", name, "--models-dir", str(folder / "models")]
        assert main(command) == 0
        found[name] = load_manifest(folder / "models" / name)
    return found


def byte_tokenizer(control: list[str]) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    add_special_tokens(tokenizer, control)
    return tokenizer


@pytest.mark.parametrize("name", FAMILIES)
def test_a_directory_says_what_it_is(served: dict[str, Manifest], name: str) -> None:
    manifest, family = served[name], FAMILIES[name]
    assert manifest.arch == name
    assert {bank.format for bank in manifest.banks} <= {"bf16"}
    assert {entry.format for entry in manifest.dense.values()} <= {"bf16", "f32", ""}
    assert (manifest.dialect, manifest.thinking, manifest.template_family) == family.speech
    assert len(manifest.eos_token_ids) == (2 if manifest.dialect == "harmony" else 1), "a call ends a turn there"
    assert plan_model(manifest.directory, Settings(kv_tokens=256)).window_tokens == 256


@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_spoken_to_in_its_own_way(served: dict[str, Manifest], name: str) -> None:
    language, family = Language.load(served[name].directory), FAMILIES[name]
    thinks = family.speech[1]
    assert language.template.switch == family.switch
    blocks = [
        *([Thinking("hm")] if thinks else []),
        Text("I look."),
        ToolCall("call1", "read", '{"path": "a.py", "n": 3}'),
    ]
    asked = Conversation((Message("user", (Text("q"),)),), TOOLS)
    ids = language.script_tokens(blocks, asked)
    stream, parser = language.stream(), language.parser(asked)
    events = [*parser.feed(stream.feed(ids) + stream.finish()), *parser.finish()]
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    thought = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    assert (said, thought) == ("I look.", "hm" if thinks else "")
    assert [event.name for event in events if isinstance(event, ToolCallStart)] == ["read"]
    (arguments,) = (event.arguments for event in events if isinstance(event, ToolCallDelta))
    assert json.loads(arguments) == {"path": "a.py", "n": 3}
    done = Message("tool", (ToolResult("call1", (Text("text"),)),))
    language.remember(blocks, ids, language.render(asked).tokens)
    prompt = language.render(Conversation((*asked.messages, Message("assistant", tuple(blocks)), done), TOOLS))
    kinds = {span.kind for span in prompt.spans}
    assert ("tool_call" in kinds, "thinking" in kinds) == (True, thinks)
    text = language.decode(prompt.tokens)
    assert ("hm" in text) == thinks
    assert language.decode(language.render(asked).tokens).endswith("<think>\n") == family.opens

"""Every family in small: a chat template in its published format, a tokenizer with its control tokens, and what follows from both."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders, models, pre_tokenizers

from engine.prompt.conversation import Conversation, Message, Text, Thinking, Tool, ToolCall, ToolChoice, ToolResult
from engine.prompt.dialects import dialects, find
from engine.prompt.grammar import Matcher, load_tokenizer
from engine.prompt.language import Language
from engine.prompt.template import ChatTemplate
from engine.prompt.tokenizer import Tokenizer
from engine.weights.gguf_tokenizer import add_special_tokens
from engine.weights.speech import speech_of
from tests.engine.prompt.test_prompt_dialects import run

LOOP = "{%- for m in messages %}"
END = "{%- endfor %}{%- if add_generation_prompt %}"
LAST = "{%- set ns = namespace(last=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
VALUE = "{{ v if v is string else v | tojson }}"


def chatml(call: str, prompt: str) -> str:
    """Qwen's frame. Results are user messages; thinking stays behind the last query."""
    return (
        LAST
        + "{%- if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
        + LOOP
        + "{%- if m.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n{%- else %}<|im_start|>{{ m.role }}\n"
        + "{% if m.role == 'assistant' and loop.index0 > ns.last and m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}"
        + "{%- for c in m.tool_calls or [] %}{{ '\\n' }}<tool_call>\n"
        + call
        + "\n</tool_call>{% endfor %}<|im_end|>\n{% endif %}"
        + END
        + "<|im_start|>assistant\n"
        + prompt
        + "{% set last_query_index = ns.last %}{%- endif %}"
    )


XML = (
    "<function={{ c.function.name }}>\n{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n"
    + VALUE
    + "{{ '\\n' }}</parameter>\n{% endfor %}</function>"
)
OFF = "{%- if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"


def dsml(section: str, result: tuple[str, str]) -> str:
    tag = "｜DSML｜"
    return (
        LAST
        + "<｜begin▁of▁sentence｜>{% if tools %}{{ tools | tojson }}{% endif %}"
        + LOOP
        + "{%- if m.role == 'user' %}<｜User｜>{{ m.content }}{% elif m.role == 'tool' %}"
        + f"{result[0]}{{{{ m.content }}}}{result[1]}"
        + "{%- elif m.role == 'assistant' %}<｜Assistant｜>{%- if loop.index0 > ns.last and enable_thinking %}<think>{{ m.reasoning_content or '' }}</think>{% else %}</think>{% endif %}{{ m.content }}"
        + f"{{%- if m.tool_calls %}}{{{{ '\\n\\n' }}}}<{tag}{section}>\n{{% for c in m.tool_calls %}}<{tag}invoke name=\"{{{{ c.function.name }}}}\">\n"
        + f"{{% for k, v in c.function.arguments.items() %}}<{tag}parameter name=\"{{{{ k }}}}\" string=\"{{{{ 'true' if v is string else 'false' }}}}\">{VALUE}</{tag}parameter>\n{{% endfor %}}</{tag}invoke>\n{{% endfor %}}</{tag}{section}>{{% endif %}}"
        + "<｜end▁of▁sentence｜>{% else %}{{ m.content }}{% endif %}"
        + END
        + "<｜Assistant｜>{{ '<think>' if enable_thinking else '</think>' }}{% endif %}"
    )


def deepseek(before: str, between: str, behind: str, arguments: str) -> str:
    return (
        "<｜begin▁of▁sentence｜>{% if tools %}{{ tools | tojson }}{% endif %}"
        + LOOP
        + "{%- if m.role == 'user' %}<｜User｜>{{ m.content }}{% elif m.role == 'tool' %}<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>"
        + "{%- elif m.role == 'assistant' %}<｜Assistant｜></think>{{ m.content }}{%- if m.tool_calls %}<｜tool▁calls▁begin｜>"
        + "{%- for c in m.tool_calls %}<｜tool▁call▁begin｜>"
        + f"{before}{{{{ c.function.name }}}}<｜tool▁sep｜>{between}{{{{ '' + {arguments} }}}}{behind}"
        + "<｜tool▁call▁end｜>{%- endfor %}<｜tool▁calls▁end｜>{% endif %}<｜end▁of▁sentence｜>{% else %}{{ m.content }}{% endif %}"
        + END
        + "<｜Assistant｜>{{ '<think>' if thinking else '</think>' }}{% endif %}"
    )


GLM = (
    LAST
    + "[gMASK]<sop>{% if tools %}<|system|>\n{{ tools | tojson }}{% endif %}"
    + LOOP
    + "{%- if m.role == 'user' %}<|user|>\n{{ m.content }}{% elif m.role == 'tool' %}<|observation|>\n<tool_response>\n{{ m.content }}\n</tool_response>"
    + "{%- elif m.role == 'assistant' %}<|assistant|>\n{%- if loop.index0 > ns.last and m.reasoning_content %}{{ '\\n' }}<think>{{ m.reasoning_content }}</think>{% else %}{{ '\\n' }}<think></think>{% endif %}"
    + "{%- if m.content %}{{ '\\n' + m.content }}{% endif %}{% for c in m.tool_calls or [] %}{{ '\\n' }}<tool_call>{{ c.function.name }}\n"
    + "{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n<arg_value>"
    + VALUE
    + "</arg_value>\n{% endfor %}</tool_call>{% endfor %}{% else %}<|system|>\n{{ m.content }}{% endif %}"
    + END
    + "<|assistant|>{{ '\\n<think></think>' if not enable_thinking }}{% endif %}"
)
MINIMAX = (
    LAST
    + "]~!b[]~b]system\n{{ tools | tojson if tools else '' }}[e~[\n"
    + LOOP
    + "{%- if m.role == 'tool' %}]~b]tool\n<response>{{ m.content }}</response>[e~[\n{% elif m.role == 'assistant' %}]~b]ai\n"
    + "{% if m.reasoning_content and loop.index0 > ns.last %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}"
    + '{%- if m.tool_calls %}{{ \'\\n\' }}<minimax:tool_call>\n{% for c in m.tool_calls %}<invoke name="{{ c.function.name }}">\n{% for k, v in c.function.arguments.items() %}<parameter name="{{ k }}">'
    + VALUE
    + "</parameter>\n{% endfor %}</invoke>\n{% endfor %}</minimax:tool_call>{% endif %}[e~[\n{% else %}]~b]{{ m.role }}\n{{ m.content }}[e~[\n{% endif %}"
    + END
    + "]~b]ai\n<think>\n{% endif %}"
)
KIMI = (
    LAST
    + "{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{% endif %}"
    + LOOP
    + "{%- if m.role == 'assistant' %}<|im_assistant|>assistant<|im_middle|><think>{{ m.reasoning_content if m.reasoning_content and loop.index0 > ns.last }}</think>{{ m.content }}"
    + "{%- if m.tool_calls %}<|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}"
    + "{%- elif m.role == 'tool' %}<|im_system|>tool<|im_middle|>## Return of {{ m.tool_call_id }}\n{{ m.content }}{% else %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>{{ m.content }}{% endif %}<|im_end|>"
    + END
    + "<|im_assistant|>assistant<|im_middle|>{% endif %}"
)
KIMI_K3 = (
    "{%- macro open(tag) %}<|open|>{{ tag }}<|sep|>{% endmacro %}{%- macro close(tag) %}<|close|>{{ tag }}<|sep|>{% endmacro %}"
    + "{% if tools %}{{ open('message role=\"system\" type=\"tool-declare\"') }}{{ tools | tojson }}{{ close('message') }}<|end_of_msg|>{% endif %}"
    + LOOP
    + "{%- if m.role == 'assistant' %}{{ open('message role=\"assistant\"') }}{% if thinking %}{{ open('think') }}{{ m.reasoning_content or '' }}{{ close('think') }}{% endif %}{{ open('response') }}{{ m.content }}{{ close('response') }}"
    + "{%- if m.tool_calls %}{{ open('tools') }}{% for c in m.tool_calls %}{{ open('call tool=\"' + c.function.name + '\" index=\"' ~ loop.index ~ '\"') }}"
    + "{%- for k, v in c.function.arguments.items() %}{{ open('argument key=\"' + k + '\" type=\"' + ('string' if v is string else 'number') + '\"') }}"
    + VALUE
    + "{{ close('argument') }}{% endfor %}{{ close('call') }}{% endfor %}{{ close('tools') }}{% endif %}"
    + "{%- elif m.role == 'tool' %}{{ open('message role=\"tool\" tool=\"' + m.name + '\"') }}{{ m.content }}{% else %}{{ open('message role=\"' + m.role + '\"') }}{{ m.content }}{% endif %}{{ close('message') }}<|end_of_msg|>"
    + END
    + "{{ open('message role=\"assistant\"') }}{{ open('think' if thinking else 'response') }}{% endif %}"
)
MISTRAL_HEAD = (
    "<s>{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    + LOOP
    + "{%- if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% elif m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}{{ raise_exception('nine') }}{% endif %}"
    + "[TOOL_RESULTS]{{ m.tool_call_id }}[TOOL_CONTENT]{{ m.content }}[/TOOL_RESULTS]{% else %}{% if m.thinking %}[THINK]{{ m.thinking }}[/THINK]{% endif %}{{ m.content }}"
)
NINE = "{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}"
MISTRAL = (
    MISTRAL_HEAD
    + "{%- for c in m.tool_calls or [] %}"
    + NINE
    + "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}</s>{% endif %}{% endfor %}"
)
MISTRAL_JSON = (
    MISTRAL_HEAD.replace("{% if m.thinking %}[THINK]{{ m.thinking }}[/THINK]{% endif %}", "")
    + "{%- if m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}"
    + NINE
    + '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}{{ ", " if not loop.last }}{% endfor %}]{% endif %}</s>{% endif %}{% endfor %}'
)
LLAMA = (
    "<|begin_of_text|>{% if tools %}<|start_header_id|>system<|end_header_id|>\n\n{{ tools | tojson }}<|eot_id|>{% endif %}"
    + LOOP
    + "{%- if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one') }}{% endif %}{%- set c = m.tool_calls[0].function %}<|start_header_id|>assistant<|end_header_id|>\n\n"
    + '{"name": "{{ c.name }}", "parameters": {{ c.arguments | tojson }}}<|eot_id|>'
    + "{%- elif m.role == 'tool' %}<|start_header_id|>ipython<|end_header_id|>\n\n{{ m.content | tojson }}<|eot_id|>{% else %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endif %}"
    + END
    + "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}{# <|python_tag|> #}"
)


@dataclass(frozen=True)
class Family:
    dialect: str
    template: str
    family: str
    thinking: bool
    control: tuple[str, ...]
    end: str
    call: str  # how the template writes the call
    opens: bool = False
    thinks: bool = True  # with calls in the same turn


THINK = ("<think>", "</think>")
TAGS = ("<tool_call>", "</tool_call>", *THINK)
DS = ("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", *THINK)
DS_CALLS = (
    *DS,
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
DS_END = "<｜end▁of▁sentence｜>"
IM = ("<|im_start|>", "<|im_end|>", *TAGS)
KIMI_TOKENS = ("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>", *THINK, "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")  # fmt: skip
MISTRAL_TOKENS = ("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[THINK]", "[/THINK]")  # fmt: skip
DSML_CALL = '<｜DSML｜invoke name="read">\n<｜DSML｜parameter name="path" string="true">a b</｜DSML｜parameter>\n<｜DSML｜parameter name="limit" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>'
ARGUMENTS = '{"path": "a b", "limit": 3}'
FAMILIES = {
    "qwen3": Family("hermes", chatml("{{ c.function | tojson }}", OFF), "qwen3", True, IM, "<|im_end|>", f'<tool_call>\n{{"name": "read", "arguments": {ARGUMENTS}}}\n</tool_call>'),
    "qwen3.5": Family("qwen_xml", chatml(XML, "{% if enable_thinking %}<think>\n{% else %}<think>\n\n</think>\n\n{% endif %}"), "qwen3.5", True, IM, "<|im_end|>", "<tool_call>\n<function=read>\n<parameter=path>\na b\n</parameter>\n<parameter=limit>\n3\n</parameter>\n</function>\n</tool_call>", opens=True),
    "deepseek-v3": Family("deepseek_v3", deepseek("function<｜tool▁sep｜>", "", "\n```", "'\n```json\n' + c.function.arguments"), "deepseek-v3", True, DS_CALLS, DS_END, f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>read<｜tool▁sep｜>\n```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜>", opens=True, thinks=False),
    "deepseek-v3.1": Family("deepseek", deepseek("", "", "", "c.function.arguments"), "deepseek-v3", True, DS_CALLS, DS_END, f"<｜tool▁call▁begin｜>read<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜>", opens=True, thinks=False),
    "deepseek-v3.2": Family("deepseek_v32", dsml("function_calls", ("<result>", "</result>")), "deepseek-v3.2", True, (*DS, "｜DSML｜"), DS_END, f"<｜DSML｜function_calls>\n{DSML_CALL}\n", opens=True),
    "deepseek-v4": Family("deepseek_v4", dsml("tool_calls", ("<tool_result>", "</tool_result>")), "deepseek-v4", True, (*DS, "｜DSML｜"), DS_END, f"<｜DSML｜tool_calls>\n{DSML_CALL}\n", opens=True),
    "glm": Family("glm", GLM, "glm-4.x", True, ("<|user|>", "<|assistant|>", "<|observation|>", "<|system|>", *TAGS, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_response>", "</tool_response>"), "<|user|>", "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a b</arg_value>\n<arg_key>limit</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"),
    "minimax": Family("minimax", MINIMAX, "minimax-m2", True, ("]~!b[", "]~b]", "[e~[", *THINK, "<minimax:tool_call>", "</minimax:tool_call>"), "[e~[", '<minimax:tool_call>\n<invoke name="read">\n<parameter name="path">a b</parameter>\n<parameter name="limit">3</parameter>\n</invoke>\n', opens=True),
    "kimi-k2": Family("kimi", KIMI, "kimi-k2", True, KIMI_TOKENS, "<|im_end|>", f"<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|>"),
    "kimi-k3": Family("kimi_k3", KIMI_K3, "kimi-k3", True, ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"), "<|end_of_msg|>", '<|open|>call tool="read" index="1"<|sep|><|open|>argument key="path" type="string"<|sep|>a b<|close|>argument<|sep|><|open|>argument key="limit" type="number"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|>', opens=True),
    "mistral": Family("mistral", MISTRAL, "", True, MISTRAL_TOKENS, "</s>", f"[TOOL_CALLS]read[ARGS]{ARGUMENTS}"),
    "mistral-v3": Family("mistral_json", MISTRAL_JSON, "", False, MISTRAL_TOKENS, "</s>", f'[TOOL_CALLS][{{"name": "read", "arguments": {ARGUMENTS}, "id": "', thinks=False),
    "llama": Family("llama", LLAMA, "", False, ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"), "<|eot_id|>", f'{{"name": "read", "parameters": {ARGUMENTS}}}', thinks=False),
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}, "list": {"type": "array", "items": {"type": "string"}}},
    "required": ["path", "limit"],
}  # fmt: skip
TOOLS = (Tool("read", "", SCHEMA), Tool("stop", "", {}, namespace="mcp__ctl"))
ASKED = Conversation((Message("user", (Text("q"),)),), TOOLS)
CALL = ToolCall("call0123456789ABCDEFabcdefgh", "read", ARGUMENTS)
READ = ("call", "", "read", ARGUMENTS)


@dataclass(frozen=True)
class Spoken:
    family: Family
    language: Language
    tokenizer_file: Path


@pytest.fixture(scope="module", params=list(FAMILIES))
def spoken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Spoken:
    family = FAMILIES[request.param]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = HfTokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    add_special_tokens(made, list(dict.fromkeys([*family.control, family.end])))
    path = tmp_path_factory.mktemp("family") / "tokenizer.json"
    made.save(str(path))
    tokenizer = Tokenizer.load(path)
    speech = speech_of(family.template)
    language = Language(
        tokenizer,
        ChatTemplate(family.template, {}),
        find(speech.dialect),
        [tokenizer.control[family.end]],
        speech.thinking,
        family=speech.template_family,
    )
    return Spoken(family, language, path)


def reread(language: Language, ids: list[int], conversation: Conversation = ASKED) -> list[tuple[str, ...]]:
    stream = language.stream()
    return run(language.parser(conversation), [stream.feed(ids), stream.finish()])


def test_the_template_gives_the_family_away(spoken: Spoken) -> None:
    speech, family = speech_of(spoken.family.template), spoken.family
    assert (speech.dialect, speech.template_family, speech.thinking) == (family.dialect, family.family, family.thinking)
    assert not speech.note
    assert spoken.language._renderer.thinking_open(None) is family.opens


def test_every_dialect_has_a_family() -> None:
    assert {family.dialect for family in FAMILIES.values()} | {"harmony"} == set(dialects())


def test_calls_of_the_past_are_written_by_the_template(spoken: Spoken) -> None:
    result = Message("tool", (ToolResult(CALL.id, (Text("done"),)),))
    prompt = spoken.language.render(Conversation((*ASKED.messages, Message("assistant", (CALL,)), result), TOOLS))
    text = spoken.language.decode(prompt.tokens)
    assert spoken.family.call in text
    assert "done" in text.split(spoken.family.call)[1]
    kinds = {span.kind for span in prompt.spans}
    assert {"tool_call", "tool_result"} <= kinds


def test_a_scripted_turn_is_read_again_and_comes_back_in_its_own_tokens(spoken: Spoken) -> None:
    language, family = spoken.language, spoken.family
    thought = [Thinking("Hm.")] if family.thinks else []
    blocks = [*thought, CALL]
    ids = language.script_tokens(blocks, ASKED)
    found = reread(language, ids)
    assert [event for event in found if event != ("thinking", "Hm.")] == [READ]
    assert reread(language, language.script_tokens([Text("Hello.")], ASKED)) == [("text", "Hello.")]
    if not family.thinks:
        return
    assert found[0] == ("thinking", "Hm.")
    prompt = language.render(ASKED)
    language.remember(blocks, ids, prompt.tokens)
    result = Message("tool", (ToolResult(CALL.id, (Text("done"),)),))
    after = language.render(Conversation((*ASKED.messages, Message("assistant", tuple(blocks)), result), TOOLS))
    generated = ids[: ids.index(language.stop_ids[0])]
    assert after.tokens[: len(prompt.tokens) + len(generated)] == prompt.tokens + generated


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("named", "read")])
def test_tool_choice_is_obeyed_twenty_times_of_twenty(spoken: Spoken, choice: ToolChoice) -> None:
    """Whatever the logits say, thinking or not, with control tokens and within the budget."""
    random.seed(11)
    language, size = spoken.language, spoken.language.vocab_size
    tokenizer = load_tokenizer(spoken.tokenizer_file, size, tuple(language.stop_ids))
    for turn in range(20):
        conversation = Conversation(ASKED.messages, TOOLS, choice, thinking=bool(turn % 2))
        grammar = language.grammar(conversation)
        assert grammar is not None
        matcher, ids, budget = Matcher(tokenizer, grammar), list[int](), 600
        while not matcher.done:
            bits = np.unpackbits(np.frombuffer(matcher.mask(budget - len(ids)), np.uint8), bitorder="little")[:size]
            token = random.choice(np.flatnonzero(bits).tolist())
            if token in language.stop_ids:
                break
            assert matcher.advance(token) and len(ids) < budget
            ids.append(token)
        *before, (kind, namespace, name, arguments) = reread(language, ids, conversation)
        assert kind == "call" and all(event[0] == "thinking" for event in before)
        values = json.loads(arguments)
        if choice.mode == "named" or name == "read":
            assert (namespace, name) == ("", "read")
            assert {"path", "limit"} <= set(values) <= set(SCHEMA["properties"])
            assert isinstance(values["path"], str) and type(values["limit"]) is int
        else:
            assert (namespace, name, values) == ("mcp__ctl", "stop", {})


def test_malformed_arguments_in_history_are_served(spoken: Spoken) -> None:
    broken = ToolCall(CALL.id, "read", '{"path": ')
    result = Message("tool", (ToolResult(CALL.id, (Text("done"),)),))
    prompt = spoken.language.render(Conversation((*ASKED.messages, Message("assistant", (broken,)), result), TOOLS))
    text = spoken.language.decode(prompt.tokens)
    assert '{"path": ' in text and "done" in text

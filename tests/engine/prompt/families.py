"""Every family in small: a chat template in its published format, and what is to be told from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders, models, pre_tokenizers

from engine.prompt.dialects import find
from engine.prompt.language import Language
from engine.prompt.template import ChatTemplate
from engine.prompt.tokenizer import Tokenizer
from engine.weights.gguf_tokenizer import add_special_tokens
from engine.weights.speech import speech_of

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


def dsml(section: str, results: tuple[str, str], result: tuple[str, str], ends: str, keep: str) -> str:
    """V3.2 and V4: whatever the model answers is followed by its turn, opened or closed; tools come to V4 as a user's words.
    `ends` is the role whose last message ends the history, `keep` when all thinking stays."""
    tag = "｜DSML｜"
    opens = f"{{{{ '<think>' if enable_thinking and ({keep} or loop.index0 >= ns.last) else '</think>' }}}}"
    return (
        LAST.replace("m.role == 'user'", ends)
        + "<｜begin▁of▁sentence｜>{% if tools %}{{ tools | tojson }}{% endif %}"
        + LOOP
        + f"{{%- if m.role == 'user' %}}<｜User｜>{{{{ m.content }}}}<｜Assistant｜>{opens}"
        + "{%- elif m.role == 'tool' %}{%- if loop.previtem.role != 'tool' %}"
        + f"{{{{ '{results[0]}' }}}}{{% endif %}}{result[0]}{{{{ m.content }}}}{result[1]}"
        + f"{{%- if loop.nextitem is undefined or loop.nextitem.role != 'tool' %}}{{{{ '{results[1]}' }}}}{opens}{{% endif %}}"
        + f"{{%- elif m.role == 'assistant' %}}{{%- if enable_thinking and ({keep} or loop.index0 > ns.last) %}}"
        + "{{ m.reasoning_content or '' }}</think>{% endif %}{{ m.content }}"
        + f"{{%- if m.tool_calls %}}{{{{ '\\n\\n' }}}}<{tag}{section}>\n{{% for c in m.tool_calls %}}<{tag}invoke name=\"{{{{ c.function.name }}}}\">\n"
        + f"{{% for k, v in c.function.arguments.items() %}}<{tag}parameter name=\"{{{{ k }}}}\" string=\"{{{{ 'true' if v is string else 'false' }}}}\">{VALUE}</{tag}parameter>\n{{% endfor %}}</{tag}invoke>\n{{% endfor %}}</{tag}{section}>{{% endif %}}"
        + "<｜end▁of▁sentence｜>{% else %}{{ m.content }}{% endif %}{%- endfor %}"
    )


def deepseek(before: str, between: str, behind: str, arguments: str) -> str:
    """V3 to V3.1: the answer to a result goes on behind it, without a turn of its own and so without thinking."""
    return (
        "{%- set ns = namespace(asked=false) %}<｜begin▁of▁sentence｜>{% if tools %}{{ tools | tojson }}{% endif %}"
        + LOOP
        + "{%- if m.role == 'user' %}{%- set ns.asked = true %}<｜User｜>{{ m.content }}"
        + "{%- elif m.role == 'tool' %}{%- set ns.asked = false %}<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>"
        + "{%- elif m.role == 'assistant' %}{%- if ns.asked %}<｜Assistant｜></think>{% endif %}{%- set ns.asked = false %}{{ m.content }}"
        + "{%- if m.tool_calls %}<｜tool▁calls▁begin｜>{%- for c in m.tool_calls %}<｜tool▁call▁begin｜>"
        + f"{before}{{{{ c.function.name }}}}<｜tool▁sep｜>{between}{{{{ '' + {arguments} }}}}{behind}"
        + "<｜tool▁call▁end｜>{%- endfor %}<｜tool▁calls▁end｜>{% endif %}<｜end▁of▁sentence｜>{% else %}{{ m.content }}{% endif %}{%- endfor %}"
        + "{%- if add_generation_prompt and ns.asked %}<｜Assistant｜>{{ '<think>' if thinking else '</think>' }}{% endif %}"
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
GLM_47 = GLM
for lines in (
    "<|user|>\n",
    "<|system|>\n",
    "<tool_response>\n",
    "{{ c.function.name }}\n",
    "</arg_key>\n",
    "</arg_value>\n",
):
    GLM_47 = GLM_47.replace(lines, lines.rstrip())
GLM_47 = (
    GLM_47.replace("\n</tool_response>", "</tool_response>")
    .replace("{{ '\\n' }}", "")
    .replace("<|assistant|>\n", "<|assistant|>")
)
GLM_47 = GLM_47.replace("{{ '\\n' + m.content }}", "{{ m.content }}").replace(
    "<think></think>{% endif %}", "</think>{% endif %}"
)
GLM_47 = GLM_47.replace(
    "{{ '\\n<think></think>' if not enable_thinking }}", "{{ '<think>' if enable_thinking else '</think>' }}"
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
    always: bool = True  # what is opened for a question is opened for a result


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
    "deepseek-v3": Family("deepseek_v3", deepseek("function<｜tool▁sep｜>", "", "\n```", "'\n```json\n' + c.function.arguments"), "deepseek-v3", True, DS_CALLS, DS_END, f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>read<｜tool▁sep｜>\n```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜>", opens=True, thinks=False, always=False),
    "deepseek-v3.1": Family("deepseek", deepseek("", "", "", "c.function.arguments"), "deepseek-v3", True, DS_CALLS, DS_END, f"<｜tool▁call▁begin｜>read<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜>", opens=True, thinks=False, always=False),
    "deepseek-v3.2": Family("deepseek_v32", dsml("function_calls", ("\\n\\n<function_results>", "\\n</function_results>\\n\\n"), ("\n<result>", "</result>"), "m.role == 'user'", "false"), "deepseek-v3.2", True, (*DS, "｜DSML｜"), DS_END, f"<｜DSML｜function_calls>\n{DSML_CALL}\n", opens=True),
    "deepseek-v4": Family("deepseek_v4", dsml("tool_calls", ("<｜User｜>", "<｜Assistant｜>"), ("<tool_result>", "</tool_result>"), "m.role in ['user', 'tool']", "tools"), "deepseek-v4", True, (*DS, "｜DSML｜"), DS_END, f"<｜DSML｜tool_calls>\n{DSML_CALL}\n", opens=True),
    "glm": Family("glm", GLM, "glm-4.x", True, ("<|user|>", "<|assistant|>", "<|observation|>", "<|system|>", *TAGS, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_response>", "</tool_response>"), "<|user|>", "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a b</arg_value>\n<arg_key>limit</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"),
    "glm-4.7": Family("glm_47", GLM_47, "glm-4.x", True, ("<|user|>", "<|assistant|>", "<|observation|>", "<|system|>", *TAGS, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_response>", "</tool_response>"), "<|user|>", "<tool_call>read<arg_key>path</arg_key><arg_value>a b</arg_value><arg_key>limit</arg_key><arg_value>3</arg_value></tool_call>", opens=True),
    "minimax": Family("minimax", MINIMAX, "minimax-m2", True, ("]~!b[", "]~b]", "[e~[", *THINK, "<minimax:tool_call>", "</minimax:tool_call>"), "[e~[", '<minimax:tool_call>\n<invoke name="read">\n<parameter name="path">a b</parameter>\n<parameter name="limit">3</parameter>\n</invoke>\n', opens=True),
    "kimi-k2": Family("kimi", KIMI, "kimi-k2", True, KIMI_TOKENS, "<|im_end|>", f"<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|>"),
    "kimi-k3": Family("kimi_k3", KIMI_K3, "kimi-k3", True, ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"), "<|end_of_msg|>", '<|open|>call tool="read" index="1"<|sep|><|open|>argument key="path" type="string"<|sep|>a b<|close|>argument<|sep|><|open|>argument key="limit" type="number"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|>', opens=True),
    "mistral": Family("mistral", MISTRAL, "", True, MISTRAL_TOKENS, "</s>", f"[TOOL_CALLS]read[ARGS]{ARGUMENTS}"),
    "mistral-v3": Family("mistral_json", MISTRAL_JSON, "", False, MISTRAL_TOKENS, "</s>", f'[TOOL_CALLS][{{"name": "read", "arguments": {ARGUMENTS}, "id": "', thinks=False),
    "llama": Family("llama", LLAMA, "", False, ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"), "<|eot_id|>", f'{{"name": "read", "parameters": {ARGUMENTS}}}', thinks=False),
}  # fmt: skip


@dataclass(frozen=True)
class Spoken:
    family: Family
    language: Language
    tokenizer_file: Path


def byte_tokenizer(path: Path, control: list[str], merges: Sequence[tuple[str, str]] = ()) -> Tokenizer:
    """A token for every byte, for every control token, and for what `merges` joins; kept in `path`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *("".join(pair) for pair in merges)]
    made = HfTokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=list(merges)))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    add_special_tokens(made, list(dict.fromkeys(control)))
    made.save(str(path))
    return Tokenizer.load(path)


def speak(family: Family, folder: Path) -> Spoken:
    """The family as it is served, from what its template tells."""
    path = folder / "tokenizer.json"
    tokenizer = byte_tokenizer(path, [*family.control, family.end], [("H", "m")])
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


def shattered(language: Language, ids: list[int]) -> list[int]:
    """The same text in tokens that no tokenizer would choose."""
    (joined,) = language.encode("Hm")
    return [
        piece
        for token in ids
        for piece in (language.encode("H") + language.encode("m") if token == joined else [token])
    ]

"""Everything that is published in the format is valid in it: the harnesses, the templates, the page's own examples."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from engine.errors import FtError
from engine.prompt.conversation import Conversation, Message, Text, Thinking
from engine.prompt.edits import schema, template, wire
from engine.prompt.edits.policy import EditPolicy
from engine.prompt.edits.template import Template
from engine.prompt.language import Language
from harnesses.registry import wire_declaration

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "edit-boundary-declarations.md").read_text(encoding="utf-8")
PLAIN = Template("plain")


def fenced(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("path", sorted((ROOT / "harnesses").glob("*/harness.toml")), ids=lambda p: p.parent.name)
def test_every_harness_is_valid_as_it_is_registered(path: Path) -> None:
    declaration = wire_declaration(tomllib.loads(path.read_text(encoding="utf-8")))
    policy = EditPolicy.compose(json.loads(json.dumps(declaration)), PLAIN)
    assert policy.declared and policy.declaration.harness == declaration["harness"]


def test_the_pages_toml_examples_are_valid() -> None:
    examples = [tomllib.loads(text) for text in fenced("toml")]
    assert {e["schema"] for e in examples} == {"edits/1", "template/1"}
    for example in examples:
        if example["schema"] == "edits/1":
            EditPolicy.compose(example, PLAIN)
        else:
            template.parse(example)


def test_the_pages_http_example_registers() -> None:
    (request,) = fenced("http")
    body = json.loads(request.split("\n\n", 1)[1])
    assert EditPolicy.compose(body["declaration"], PLAIN, body["version"]).observe is False
    assert EditPolicy.compose(body["declaration"], PLAIN, "2.0").observe is True


def test_the_pages_request_fields_are_understood() -> None:
    (body,) = [json.loads(text) for text in fenced("json")]
    found = EditPolicy.compose(None, PLAIN).wire({}, body)
    assert found.epoch == "3" and [h.op for h in found.hints] == ["clear_result", "move_tail"]
    assert [h.after for h in found.hints] == ["user", ""]


def test_the_page_names_every_key_and_word_of_the_schema() -> None:
    def words(node: Any) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(words, node)) if node else set()
        if not isinstance(node, dict):
            return set()
        found = set(node.get("properties", {})) | {v for v in node.get("enum", []) if isinstance(v, str)}
        return found.union(*(words(value) for value in node.values()))

    example_only = {
        "header",
        "contains",
        "re",
        "empty_delta",
        "thinking_delta_empty",
        "response.in_progress",
        "comment",
        "ping",
    }
    missing = {w for w in words(schema.schema("edits/1")) - example_only if f"{w}" not in PAGE}
    assert not missing
    assert all(op in PAGE for op in wire.HINT_OPS)


def test_the_models_that_ship_have_their_families() -> None:
    assert template.find("", thinking=True).family == "chatml-think"
    assert template.find("", thinking=False).family == "smollm2"
    assert {"qwen3.5", "qwen3.6", "glm-4.x", "gpt-oss", "deepseek-v4"} <= set(template.families())
    assert template.find("qwen3.5", True).serving(True, None).strips(tools=True)  # it has no switch
    assert not template.find("qwen3.6", True).serving(True, None).strips(tools=True)
    assert template.find("deepseek-v4", True).serving(False, None).strips(tools=False)
    assert not template.find("deepseek-v4", True).serving(False, None).strips(tools=True)


@pytest.mark.parametrize("model", ["tiny-hybrid", "smollm2-moe"])
@pytest.mark.parametrize("preserve", [True, False])
def test_a_template_does_with_thinking_what_its_family_declares(models_dir: Path, model: str, preserve: bool) -> None:
    language = Language.load(models_dir / model, preserve_thinking=preserve)
    query = Message("user", (Text("q"),))
    messages = (query, Message("assistant", (Thinking("deep thought"), Text("a"))), query)
    shown = "deep thought" in language.decode(language.render(Conversation(messages)).tokens)
    assert shown is not language.template.strips(tools=False)
    kept = Conversation(messages, preserve_thinking=True)
    assert "deep thought" in language.decode(language.render(kept).tokens)


def test_a_switch_that_the_template_does_not_know_is_not_claimed(models_dir: Path, tmp_path: Path) -> None:
    model = tmp_path / "tiny-hybrid"
    shutil.copytree(models_dir / "tiny-hybrid", model)
    source = (model / "chat_template.jinja").read_text()
    (model / "chat_template.jinja").write_text(source.replace("preserve_thinking or ", ""))
    language = Language.load(model)
    assert language.template.switch is None and language.template.strips(tools=True)


def test_the_manifest_names_the_family(models_dir: Path, tmp_path: Path) -> None:
    model = tmp_path / "tiny-hybrid"
    shutil.copytree(models_dir / "tiny-hybrid", model)
    manifest = json.loads((model / "ftw.json").read_text())
    for family, known in (("qwen3.6", True), ("none-such", False)):
        (model / "ftw.json").write_text(json.dumps({**manifest, "template_family": family}))
        if known:
            assert Language.load(model).template.family == family
        else:
            with pytest.raises(FtError, match="none-such"):
                Language.load(model)

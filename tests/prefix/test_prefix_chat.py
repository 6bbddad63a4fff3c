"""A chat without a declaration on the hybrid model: leaving a message out computes what stands behind it, and no more."""

import pytest

from engine.prompt.conversation import Conversation, Message, Text
from engine.prompt.language import Language
from tests.serving import engine_server

HEAD, MESSAGE, TOTAL, MESSAGES = 64, 224, 4168, 17
ANSWERS = (1, 4, 6, 9, 11, 13, 15)  # the user wrote twice in places, so that each of these stands between user messages
ROLES = ["assistant" if i in ANSWERS else "user" for i in range(MESSAGES)]


@pytest.fixture(scope="module")
def engine(models_dir):
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k"]) as served:
        yield served


@pytest.fixture(scope="module")
def language(models_dir):
    return Language.load(models_dir / "tiny-hybrid")


def text(language, number, tokens):
    """`tokens` tokens that begin with their own."""
    words = f"{chr(97 + number)}" + " the" * (tokens - 1)
    assert len(language.encode(words)) == tokens
    return words


def render(language, messages):
    return language.render(Conversation(tuple(Message(role, (Text(said),)) for role, said in messages)))


def chat(language):
    """17 messages behind a system message, of 224 tokens each but for the last: 4,168 with the generation prefix."""
    sizes = {role: 1 for role in ("system", "user", "assistant")}
    probe = render(
        language, [(role, text(language, i, 1)) for i, role in enumerate(["system", "user", "assistant", "user"])]
    )
    starts = [min(s.start for s in probe.spans if s.message == m and s.kind != "generation") for m in range(4)]
    sizes = {"system": starts[1], "user": starts[2] - starts[1], "assistant": starts[3] - starts[2]}
    generation = len(probe.tokens) - probe.end
    wanted = [HEAD, *[MESSAGE] * (MESSAGES - 1), TOTAL - HEAD - MESSAGE * (MESSAGES - 1) - generation]
    made = [
        (role, text(language, i, size - sizes[role] + 1))
        for i, (role, size) in enumerate(zip(["system", *ROLES], wanted, strict=True))
    ]
    assert len(render(language, made).tokens) == TOTAL
    return made


def ask(engine, messages):
    body = {
        "model": "tiny-hybrid",
        "max_tokens": 1,
        "messages": [{"role": role, "content": said} for role, said in messages],
    }
    usage = engine.client.post("/v1/chat/completions", json=body).raise_for_status().json()["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]


def test_leaving_a_message_out_computes_the_suffix(engine, language):
    messages = chat(language)
    assert ask(engine, messages) == (TOTAL, TOTAL)
    computed = {}
    for percent, left_out in ((25, 4), (50, 9), (75, 13)):
        prompt, computed[percent] = ask(engine, messages[: 1 + left_out] + messages[2 + left_out :])
        assert prompt == TOTAL - MESSAGE
    assert computed == {25: 2983, 50: 1863, 75: 967}

"""Upstreams that are busy, break off or talk nonsense: an error in the client's dialect, or another replica."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.prompt.language import Language
from tests.engine.upstream.servers import front_before, said
from tests.engine.upstream.test_upstream_wires import BODY, vllm
from tests.ports import free_port

MESSAGES = {**BODY, "model": "m"}
ASK = "POST /v1/completions"


@pytest.fixture(scope="module")
def language(models_dir: Path) -> Language:
    return Language.load(models_dir / "tiny-hybrid")


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_busy_is_said_with_the_upstreams_own_wait(language: Language, models_dir: Path) -> None:
    busy = (429, {"retry-after": "17"}, {"error": {"message": "too many requests"}})
    with (
        said({**vllm(language, ["a"]), ASK: busy}) as server,
        front_before([server.url], "tiny-hybrid", models_dir) as front,
    ):
        for path, status in (("/v1/messages", 529), ("/v1/chat/completions", 503)):
            answer = front.client.post(path, json=MESSAGES)
            assert answer.status_code == status and 15 <= int(answer.headers["retry-after"]) <= 17, answer.text
    assert sum(key == ASK for key, _ in server.asked) == 1, "it asked to be left alone"


def test_a_failure_before_the_first_token_goes_to_another_replica(language: Language, models_dir: Path) -> None:
    cases: list[Any] = [
        (500, {}, {"error": {"message": "out of memory"}}),
        (503, {"retry-after": "5"}, {}),
        (401, {}, {}),
        [{"error": {"message": "scheduler died", "code": 500}}],
        ["data: {broken"],
        [],
    ]
    with (
        said(vllm(language, ["fine"])) as good,
        said(vllm(language, ["bad"])) as bad,
        front_before([bad.url, good.url], "tiny-hybrid", models_dir) as front,
    ):
        for number, case in enumerate(cases):
            bad.answers[ASK] = case
            body = {**MESSAGES, "messages": [{"role": "user", "content": f"{number} " * 400}]}
            answer = front.client.post("/v1/messages", json=body)
            assert answer.status_code == 200 and "fine" in answer.text, (case, answer.text)
        failed = front.get("/v1/stats")["engine"]["upstream"][0]["failed"]
    assert failed >= 2, "the bad replica was never chosen"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
def test_an_answer_that_breaks_off_is_an_error_in_the_stream(path: str, language: Language, models_dir: Path) -> None:
    answers = vllm(language, ["one", " two", " three"])
    answers[ASK] = answers[ASK][:2]
    with said(answers) as server, front_before([server.url], "tiny-hybrid", models_dir) as front:
        body = {**MESSAGES, "input": "hi", "stream": True}
        text = front.client.post(path, json=body).text
        stats = front.wait_idle()
    last = events(text)[-1]
    assert "error" in json.dumps(last) and "before it was complete" in text
    assert stats["engine"]["upstream"][0]["failed"] == 1


def test_a_request_the_upstream_calls_wrong_is_not_sent_twice(language: Language, models_dir: Path) -> None:
    wrong = (400, {}, {"error": {"message": "temperature must be at most 0.4"}})
    with (
        said({**vllm(language, []), ASK: wrong}) as one,
        said({**vllm(language, []), ASK: wrong}) as other,
        front_before([one.url, other.url], "tiny-hybrid", models_dir) as front,
    ):
        answer = front.client.post("/v1/chat/completions", json=BODY)
    assert answer.status_code == 400 and "at most 0.4" in answer.json()["error"]["message"]
    assert sum(key == ASK for server in (one, other) for key, _ in server.asked) == 1


def test_an_upstream_that_comes_later(language: Language, models_dir: Path) -> None:
    port = free_port()
    with front_before([f"http://127.0.0.1:{port}"], "tiny-hybrid", models_dir, ready=False) as front:
        answer = front.client.post("/v1/messages", json=MESSAGES)
        assert answer.status_code == 529 and answer.headers["retry-after"]
        assert "nothing listens there" in front.client.get("/ready").json()["message"]
        with said(vllm(language, ["here", " now"]), port):
            front.wait_ready(20)
            answer = front.client.post("/v1/messages", json=MESSAGES)
            assert answer.status_code == 200 and "here now" in answer.text


SERVE = ["serve", "--model", "tiny-hybrid", "--port", "0"]


def test_another_machine_needs_consent(
    models_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FT_UPSTREAM_TOKEN", "s3cret")
    where = ["--models-dir", str(models_dir), "--runtime-dir", str(tmp_path / "run")]
    assert main([*SERVE, *where, "--upstream", "http://192.0.2.1:8000"]) == 4
    said = capsys.readouterr().err
    assert "192.0.2.1:8000 is another machine" in said and "s3cret" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://127.0.0.1", "http://user:word@127.0.0.1:8000", "http://a b"])
def test_an_address_that_is_none(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--models-dir", str(tmp_path), "--runtime-dir", str(tmp_path / "run")]
    assert main([*SERVE, *where, "--upstream", url]) == 2
    said = capsys.readouterr().err
    assert "--upstream" in said and "word" not in said.replace("--upstream", "")


def test_the_plan_says_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "tiny-hybrid", "--upstream", "http://127.0.0.1:8000", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["total_bytes"] == 0 and {"anchors", "anticipation", "scripts"} <= set(told["cannot"])

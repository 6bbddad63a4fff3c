"""The way into the web console: what is open, what needs both halves of a grant, and what no grant opens. Over HTTP, to a real front."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.api.app import _ADMIN_ROUTES
from engine.api.console import ROUTES
from engine.errors import Unauthorized
from engine.front.console.files import POLICY, files
from engine.front.console.grants import CODE_S, GRANT_S, MAX_CODES, MAX_GRANTS, Grants
from tests.engine.front.fakes import fake_engine
from tests.serving import Engine

TELLING = ("/v1/stats", "/v1/requests", "/v1/sessions", "/v1/engine/life", "/v1/engine/memory", "/about")


@pytest.fixture(scope="module")
def engine(models_dir: Path) -> Iterator[Engine]:
    with fake_engine(models_dir) as (engine, _):
        yield engine


def ask(method: str, url: str, **options: Any) -> httpx.Response:
    """Without the system's certificates, which are slow to read, and without a memory for cookies."""
    return httpx.request(method, url, timeout=30, trust_env=False, verify=False, **options)


class Page:
    """What a page in a browser sends, by hand."""

    def __init__(self, engine: Engine, prices: dict[str, float] | None = None) -> None:
        self.engine, self.origin = engine, engine.url
        self.invited = engine.client.post("/v1/engine/console", json={"prices": prices}).raise_for_status().json()
        self.entered = self.post("/enter", {"code": self.invited["code"]}).raise_for_status()
        self.key = self.entered.json()["key"]
        self.cookie = self.entered.cookies[f"ft_console_{engine.port}"]

    def headers(self, **more: str | None) -> dict[str, str]:
        own = {"x-ft-console": getattr(self, "key", ""), "cookie": "", "origin": None, "sec-fetch-site": "same-origin"}
        if hasattr(self, "cookie"):
            own["cookie"] = f"theme=dark; ft_console_{self.engine.port}={self.cookie}"
        sent = own | {name.replace("_", "-"): value for name, value in more.items()}
        return {name: value for name, value in sent.items() if value is not None}

    def get(self, path: str, **more: str | None) -> httpx.Response:
        return ask("GET", f"{self.engine.url}/dashboard{path}", headers=self.headers(**more))

    def post(self, path: str, body: object, **more: str | None) -> httpx.Response:
        headers = self.headers(**{"origin": self.origin, **more})
        return ask("POST", f"{self.engine.url}/dashboard{path}", json=body, headers=headers)


@pytest.fixture(scope="module")
def page(engine: Engine) -> Page:
    return Page(engine, {"input": 3, "cached": 0.3, "output": 15})


def test_the_files_are_open_and_bring_a_policy_that_nothing_gets_around(engine: Engine) -> None:
    for name in ("", *(f"/{name}" for name in files() if name != "index.html")):
        answer = ask("GET", f"{engine.url}/dashboard{name}")
        assert answer.status_code == 200, name
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert policy == POLICY and "script-src 'self';" in policy and "connect-src 'self';" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in answer.headers and "access-control-allow-origin" not in answer.headers
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", answer.text), f"{name} names an address"
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", answer.text), name
    html = files()["index.html"].content.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", html), "something inline"


@pytest.mark.parametrize(
    "path", ["/../grants.py", "/..%2fgrants.py", "/%2e%2e/files.py", "/page/main.js", "/nothing.js", "/index.html"]
)
def test_only_the_files_of_the_page_are_served(engine: Engine, path: str) -> None:
    assert ask("GET", f"{engine.url}/dashboard{path}").status_code in (401, 404)


@pytest.mark.parametrize("path", TELLING)
def test_without_both_halves_nothing_is_told(page: Page, path: str) -> None:
    assert page.get(path).status_code == 200
    admin = f"Bearer {page.engine.admin_token}"
    for wrong in (
        {"cookie": None, "x_ft_console": None},
        {"cookie": None},
        {"x_ft_console": None},
        {"x_ft_console": page.key[:-1]},
        {"x_ft_console": page.engine.admin_token},
        {"cookie": f"ft_console_{page.engine.port}={page.key}", "x_ft_console": page.cookie},
        {"cookie": f"ft_console_1={page.cookie}"},
        {"cookie": f'ft_console_{page.engine.port}="broken', "x_ft_console": ""},
        {"cookie": None, "x_ft_console": None, "authorization": admin},
    ):
        answer = page.get(path, **wrong)
        assert answer.status_code == 401 and "ft console" in answer.text, wrong


@pytest.mark.parametrize("path", TELLING)
def test_another_origin_is_refused_with_a_good_grant_too(page: Page, path: str) -> None:
    port = page.engine.port
    for origin in (
        "https://evil.example",
        f"http://127.0.0.1:{port + 1}",
        f"http://localhost:{port}",
        f"https://127.0.0.1:{port}",
        "null",
        "",
    ):
        assert page.get(path, origin=origin).status_code == 403, origin
    for site in ("cross-site", "same-site", "none"):
        assert page.get(path, sec_fetch_site=site).status_code == 403, site
    assert page.get(path, host="evil.example").status_code == 403
    assert page.get(path, origin=page.origin).status_code == 200


def test_what_changes_something_needs_an_origin(page: Page) -> None:
    body = {"kv_tokens": 4096}
    for op in ("plan", "apply"):
        path = f"/v1/engine/memory/{op}"
        assert page.post(path, body, origin=None).status_code == 403
        assert page.post(path, body, origin="null").status_code == 403
        assert page.post(path, body, x_ft_console=None).status_code == 401
        assert page.post(path, body).json()["asked"]["kv_tokens"] == 4096
    assert page.post("/enter", {"code": "x"}, origin="https://evil.example").status_code == 403
    assert page.post("/v1/engine/memory/plan", {"kv_tokens": 257}).status_code == 400


def test_a_page_can_do_no_more_than_it_shows(page: Page) -> None:
    """No route that hands out a token, ends anything or talks to the model; and its grant is worth nothing elsewhere."""
    offered = {path for path, _, _ in _ADMIN_ROUTES}
    assert offered >= ROUTES
    for path in (offered - ROUTES) | {"/v1/messages", "/v1/chat/completions", "/v1/sessions/s-aaaaaaaaaa"}:
        if not path.startswith("/dashboard"):
            assert page.get(path).status_code == 404, path
            assert page.post(path, {}).status_code == 404, path
    assert page.post("/v1/sessions", {"harness": "x"}).status_code == 404
    assert page.post("/v1/stats", {}).status_code == 404
    for path in ("/v1/stats", "/v1/sessions"):
        direct = ask("GET", page.engine.url + path, headers=page.headers())
        assert direct.status_code == 401


def test_a_code_works_once_and_only_the_administrator_gets_one(engine: Engine) -> None:
    page = Page(engine)
    again = page.post("/enter", {"code": page.invited["code"]})
    assert again.status_code == 401 and "used before" in again.text
    for wrong in ("", "x", page.key, engine.admin_token):
        assert page.post("/enter", {"code": wrong}).status_code == 401
    assert page.post("/enter", {}).status_code == 400
    own = {"authorization": f"Bearer {engine.session()['token']}"}
    assert engine.client.post("/v1/engine/console", json={}, headers=own).status_code == 401
    assert ask("POST", f"{engine.url}/v1/engine/console", json={}).status_code == 401
    url = page.invited["url"]
    assert url == f"{engine.url}/dashboard#{page.invited['code']}" and "?" not in url
    assert engine.admin_token not in url and engine.admin_token not in page.entered.text


def test_the_cookie_is_for_no_script_and_no_other_site(page: Page) -> None:
    words = page.entered.headers["set-cookie"].lower()
    assert "httponly" in words and "samesite=strict" in words and "path=/dashboard" in words and "domain" not in words
    assert page.key not in words and page.entered.headers["cache-control"] == "no-store"


def test_a_page_that_leaves_is_out(engine: Engine) -> None:
    page = Page(engine)
    assert page.get("/v1/stats").status_code == 200
    assert page.post("/leave", {}).status_code == 200
    assert page.get("/v1/stats").status_code == 401


def test_prices_reach_the_page_as_they_were_given(engine: Engine, page: Page) -> None:
    assert page.get("/about").json() == {"prices": {"input": 3, "cached": 0.3, "output": 15}}
    assert Page(engine).get("/about").json() == {"prices": None}
    for bad in ({"input": 1}, {"input": -1, "cached": 1, "output": 1}, {"input": "x", "cached": 1, "output": 1}, 3):
        assert engine.client.post("/v1/engine/console", json={"prices": bad}).status_code == 400, bad


def test_neither_files_nor_logs_hold_what_opens_the_console(engine: Engine) -> None:
    page = Page(engine)
    page.get("/v1/stats", x_ft_console="wrong-" + page.key)
    kept = engine.runtime_dir / "console.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    texts = [kept.read_text(), engine.log.read_text(), (engine.log.parent / "output").read_text()]
    for secret in (page.key, page.cookie, page.invited["code"], engine.admin_token):
        assert all(secret not in text for text in texts)


def test_grants_outlive_the_process_and_their_time_ends(tmp_path: Path) -> None:
    now = [1000.0]
    grants = Grants(tmp_path, clock=lambda: now[0])
    code, late = grants.invite({"n": 1}), grants.invite({"n": 2})
    grant = grants.enter(code)
    now[0] += CODE_S
    with pytest.raises(Unauthorized, match="too old"):
        grants.enter(late)
    after = Grants(tmp_path, clock=lambda: now[0])
    assert after.about(grant.cookie, grant.key) == {"n": 1}
    assert after.about(grant.key, grant.cookie) is None and after.about("", "") is None
    now[0] = 1000.0 + GRANT_S
    assert after.about(grant.cookie, grant.key) is None
    assert Grants(tmp_path, clock=lambda: now[0]).about(grant.cookie, grant.key) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 1}', '{"a": {"until": "x", "about": {}}}', '{"a": {"until": 9e99}}']
)
def test_a_damaged_file_of_grants_opens_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "console.json").write_text(text)
    grants = Grants(tmp_path)
    assert grants.about("a", "") is None
    grant = grants.enter(grants.invite({}))
    assert Grants(tmp_path).about(grant.cookie, grant.key) == {}


def test_codes_and_grants_do_not_pile_up(tmp_path: Path) -> None:
    grants = Grants(tmp_path)
    codes = [grants.invite({}) for _ in range(MAX_CODES + 1)]
    with pytest.raises(Unauthorized):
        grants.enter(codes[0])
    given = [grants.enter(grants.invite({"n": n})) for n in range(MAX_GRANTS + 1)]
    assert grants.about(given[0].cookie, given[0].key) is None
    assert grants.about(given[-1].cookie, given[-1].key) == {"n": MAX_GRANTS}
    assert len(json.loads((tmp_path / "console.json").read_text())) == MAX_GRANTS


def ft(engine: Engine, home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The real command, of a user whose engine this is."""
    if not (home / "runtime").exists():
        (home / "runtime").symlink_to(engine.runtime_dir)
    environ = {"FT_HOME": str(home), "HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **env}
    command = [sys.executable, "-P", "-m", "ftagent", "console", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, cwd=home)


def test_the_command_prints_an_address_and_takes_the_prices_of_the_receipts(engine: Engine, tmp_path: Path) -> None:
    done = ft(engine, tmp_path, FT_PRICE_INPUT="3", FT_PRICE_OUTPUT="15")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"{re.escape(engine.url)}/dashboard#[\w-]{{43}}\n", done.stdout)
    page = Page.__new__(Page)
    page.engine, page.origin = engine, engine.url
    page.entered = page.post("/enter", {"code": done.stdout.strip().partition("#")[2]}).raise_for_status()
    page.key, page.cookie = page.entered.json()["key"], page.entered.cookies[f"ft_console_{engine.port}"]
    assert page.get("/about").json() == {"prices": {"input": 3, "cached": 3, "output": 15}}


def test_the_browser_is_told_by_a_file_that_only_its_owner_reads(engine: Engine, tmp_path: Path) -> None:
    """Everybody on a machine sees the arguments of the programs that run there."""
    seen, program = tmp_path / "seen", tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nf="${{1#file://}}"; {{ echo "$1"; stat -c %a "$f"; cat "$f"; }} > {seen}\n')
    program.chmod(0o755)
    for _ in range(2):  # also where the file of the last time is still there
        done = ft(engine, tmp_path, "--open", BROWSER=f"{program} %s")
        assert done.returncode == 0, done.stderr
        argument, mode, page = seen.read_text().splitlines()
        code = done.stdout.strip().partition("#")[2]
        assert code and code not in argument and f"#{code}" in page and mode == "600"
    missing = ft(engine, tmp_path, "--open", BROWSER=f"{tmp_path}/none %s")
    assert missing.returncode == 3 and "ft console" in missing.stderr

"""The web console in a real browser before a real engine: what it shows, what it changes, and what it lets nobody do."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import chromium
from tests.browser import Broken, Browser, Page
from tests.engine.front.fakes import SERVE_FAKE
from tests.ports import free_port
from tests.serving import Engine, engine_server, stop

OFFLOAD = ["--device", "emulated", "--moe-backend", "offload", "--device-memory", "160m", "--preset", "agent"]
PRICES = {"input": 3.0, "cached": 0.3, "output": 15.0}
HOSTILE = [
    "<img src=x onerror=window.broken=1>",
    "</td></table><script>window.broken=1</script>",
    '"><svg onload=window.broken=1>',
    "javascript:window.broken=1",
    "\u202egnp.exe\u202c",
    "a\u0000b\u001b[31mc\nd",
    "\u65e5\u672c\u8a9e\u306e\u540d\u524d\uff37\uff29\uff24\uff25",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 20,
    "x" * 5000,
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    try:
        program = chromium.executable()
    except chromium.Missing as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("browser")
    with Browser(folder, program) as browser:
        try:
            browser.open()
        except Broken:
            pytest.skip(f"{program} does not start here: {(folder / 'browser.log').read_text()[-500:]}")
        yield browser


@pytest.fixture(scope="module")
def engine(models_dir: Path) -> Iterator[Engine]:
    with engine_server("tiny-hybrid", models_dir, flags=[*OFFLOAD, "--heartbeat-s", "0.3"]) as engine:
        session = engine.session(name="first", watchdog_s=300)
        messages = [{"role": "system", "content": "Be brief."}]
        for turn in range(3):
            messages.append({"role": "user", "content": f"item {turn} " * 60})
            messages.append(say(session, messages, 12))
        say(session, [messages[0], {"role": "user", "content": "something else " * 40}, *messages[2:4]], 8)
        engine.wait_idle(60)
        yield engine


def say(session: dict[str, Any], messages: list[dict[str, str]], tokens: int) -> dict[str, str]:
    url, head = session["base_urls"]["openai"], {"authorization": f"Bearer {session['token']}"}
    body = {"model": "any", "messages": messages, "max_tokens": tokens}
    answer = httpx.post(f"{url}/chat/completions", headers=head, json=body, timeout=120, trust_env=False)
    assert answer.status_code == 200, answer.text
    message: dict[str, str] = answer.json()["choices"][0]["message"]
    return message


def invited(engine: Engine) -> str:
    return str(engine.client.post("/v1/engine/console", json={"prices": PRICES}).raise_for_status().json()["url"])


@pytest.fixture
def page(browser: Browser, engine: Engine) -> Iterator[Page]:
    page = browser.open(invited(engine))
    fact(page, "state", "READY")
    page.wait("document.getElementById('kv').disabled === false")
    yield page
    assert page.run("window.broken ?? null") is None
    assert page.complaints == []
    page.close()


def fact(page: Page, name: str, pattern: str, limit_s: float = 60) -> str:
    """The text of one fact once it matches."""
    script = f"document.querySelector('[data-fact={name}]')?.textContent ?? ''"
    return str(page.wait(script, limit_s, until=lambda text: bool(re.search(pattern, str(text)))))


def shared_out(engine: Engine, done: Callable[[Any], bool]) -> Any:
    """The map of memory once `done`: it changes hands in pieces, between steps."""
    deadline = time.monotonic() + 60
    while not done(told := engine.get("/v1/engine/memory")):
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
    return told


def whole(count: int) -> str:
    return f"{count:,}"


def test_it_opens_by_a_code_that_is_gone_and_asks_nobody_else(page: Page, engine: Engine) -> None:
    fact(page, "decode_total", r"\d")
    assert page.run("location.href") == f"{engine.url}/dashboard"
    assert page.run("document.cookie") == ""
    assert page.run("history.length") <= 2
    assert all(url.startswith(f"{engine.url}/") for url in page.requests), page.requests
    assert engine.admin_token not in json.dumps(page.requests)
    assert page.run("document.querySelectorAll('script:not([src]), style, [style*=url]').length") == 0
    refused = page.run(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'taken' } catch (e) { return e.name } })()"
    )
    assert refused == "TypeError", "markup could be made of a text"
    page.complaints.clear()
    assert (
        page.run("(() => { try { return new Function('return 1')() } catch (e) { return 'refused' } })()") == "refused"
    )
    assert page.run("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')") == "refused"
    page.complaints.clear()


def test_numbers_are_those_of_the_engine(page: Page, engine: Engine) -> None:
    stats, life, memory = engine.wait_idle(60), engine.get("/v1/engine/life"), engine.get("/v1/engine/memory")
    totals, tokens = life["totals"], stats["engine"]["tokens"]
    assert fact(page, "prefill_total", re.escape(whole(tokens["prefill"])))
    assert fact(page, "decode_total", re.escape(whole(tokens["decode"])))
    for name in ("requests", "prompt_tokens", "output_tokens"):
        assert fact(page, name, rf"^{whole(totals[name])}$")
    cached = f"{whole(totals['cached_tokens'])} ({totals['cached_tokens'] / totals['prompt_tokens']:.1%})"
    assert fact(page, "cached_tokens", re.escape(cached))
    fresh = totals["prompt_tokens"] - totals["cached_tokens"]
    saved = (
        fresh * PRICES["input"]
        + totals["cached_tokens"] * PRICES["cached"]
        + totals["output_tokens"] * PRICES["output"]
    ) / 1e6
    assert fact(page, "saved", rf"^{saved:.4f}$")
    assert fact(page, "energy", "^-$"), "nothing measures it, and unknown is not 0"
    assert page.text("[data-tenant=kv]").endswith(
        f"{whole(memory['kv']['used_tokens'])} / {whole(memory['kv']['tokens'])} tokens"
    )
    experts = memory["experts"]
    hit = f", hit {(1 - experts['miss_rate']):.1%}" if experts["miss_rate"] is not None else ""
    assert page.text("[data-tenant=experts]").endswith(f"{experts['resident']} / {experts['slots']} slots{hit}")
    session = next(s for s in engine.get("/v1/sessions")["sessions"] if s["name"] == "first")
    row = page.wait(f"document.querySelector('[data-session={session['id']}]')?.innerText")
    told = session["stats"]
    assert whole(told["prompt_tokens"]) in row and whole(told["output_tokens"]) in row and "limit 5m" in row
    turns = [
        t
        for t in engine.get("/v1/requests")["requests"]
        if t["session"] == session["id"] and not t["side"] and t["kind"] is None
    ]
    marks = page.run("[...document.querySelectorAll('#chart-ttft .mark')].map((mark) => mark.classList[1])")
    wanted = ["dot" if not t["broke_at"] else "diamond" if t["broke_at"]["predicted"] else "cross" for t in turns]
    assert marks == wanted and "cross" in wanted, "a broken prefix is marked"
    assert "watchdog 5m" in page.run("document.querySelector('#chart-ttft svg').textContent")
    curve = engine.get("/v1/engine/experts")["curve"]
    page.wait(
        "document.querySelector('#chart-misses .line')?.getAttribute('d').split('L').length",
        until=lambda n: n == len(curve),
    )
    assert f"{experts['slots']} slots, " in page.run("document.querySelector('#chart-misses svg').textContent")


def test_the_slider_asks_and_applies_and_ctl_sees_it(page: Page, engine: Engine, tmp_path: Path) -> None:
    page.run("document.getElementById('kv').focus()")
    before = engine.get("/v1/engine/memory")["kv"]["tokens"]
    page.press("ArrowLeft", 3)
    wanted = int(page.run("document.getElementById('kv').value"))
    assert wanted < before
    page.wait("document.querySelector('[data-then=kv_tokens]')?.textContent")
    predicted = engine.client.post("/v1/engine/memory/plan", json={"kv_tokens": wanted}).json()
    for name in ("kv_tokens", "window_tokens", "moe_slots"):
        assert page.run(f"document.querySelector('[data-then={name}]').textContent") == whole(predicted["then"][name])
    assert engine.get("/v1/engine/memory")["kv"]["tokens"] == before, "a prediction changes nothing"
    page.press("Tab")
    while page.run("document.activeElement.id") != "apply":
        page.press("Tab")
    page.press("Enter")
    page.wait("document.getElementById('applied') !== null")
    told = shared_out(engine, lambda told: told["kv"]["tokens"] == wanted)
    assert told["kv"]["pinned"]
    (tmp_path / "runtime").symlink_to(engine.runtime_dir)
    command = [sys.executable, "-P", "-m", "ftagent", "ctl", "cache"]
    table = subprocess.run(
        command,
        env={"FT_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert table.returncode == 0, table.stderr
    assert f"/{wanted:,}" in table.stdout
    assert page.wait(
        "document.querySelector('[data-tenant=kv]')?.innerText", until=lambda text: f"/ {wanted:,} tokens" in text
    )


@pytest.mark.parametrize("preset", ["minimum", "chat", "agent", "auto"])
def test_presets_are_planned_and_applied(page: Page, engine: Engine, preset: str) -> None:
    predicted = engine.client.post("/v1/engine/memory/plan", json={"preset": preset}).json()
    assert predicted["possible"], predicted
    page.run(f"document.querySelector('[data-preset={preset}]').click()")
    page.wait(
        "document.querySelector('[data-then=kv_tokens]')?.textContent",
        until=lambda text: text == whole(predicted["then"]["kv_tokens"]),
    )
    assert page.run(f"document.querySelector('[data-preset={preset}]').getAttribute('aria-pressed')") == "true"
    page.run("document.getElementById('apply').click()")
    page.wait("document.getElementById('applied') !== null")
    told = shared_out(engine, lambda told: told["kv"]["tokens"] == predicted["then"]["kv_tokens"] or preset == "auto")
    assert told["auto"] if preset == "auto" else told["preset"] == preset
    fact(page, "memory-mode", f"auto {'on' if told['auto'] else 'off'}, preset {told['preset']}")
    assert page.run("document.getElementById('apply').disabled")


def test_what_cannot_be_is_said_and_not_applied(page: Page, engine: Engine) -> None:
    """The page shows the engine's own words."""
    now = engine.get("/v1/engine/memory")["kv"]["tokens"]
    page.run(
        "const s = document.getElementById('kv'); s.min = 1; s.step = 1; s.value = 100; s.dispatchEvent(new Event('input'))"
    )
    page.wait(
        "document.getElementById('plan').innerText", until=lambda text: "not possible" in text and "too few" in text
    )
    assert page.run("document.getElementById('apply').disabled")
    page.press("Escape")
    assert engine.get("/v1/engine/memory")["kv"]["tokens"] == now


@contextlib.contextmanager
def at_work(engine: Engine, session: dict[str, Any], stream: bool = True, tokens: int = 1500) -> Iterator[None]:
    """A long request of this session, hung up at the end."""
    url, head = session["base_urls"]["openai"], {"authorization": f"Bearer {session['token']}"}
    body = {
        "model": "any",
        "messages": [{"role": "user", "content": "count " * 200}],
        "max_tokens": tokens,
        "stream": stream,
    }
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    ended = threading.Event()

    def ask() -> None:
        with httpx.Client(timeout=120, trust_env=False) as client, contextlib.suppress(httpx.HTTPError):
            if not stream:
                client.post(f"{url}/chat/completions", headers=head, json={**body, "tools": tools})
                return
            with client.stream(
                "POST", f"{url}/chat/completions", headers=head, json={**body, "tools": tools}
            ) as answer:
                for _ in answer.iter_raw():
                    if ended.is_set():
                        return

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(120)


def test_a_request_in_flight_is_seen_with_what_it_is_made_of(page: Page, engine: Engine) -> None:
    session = engine.session(name="at work", watchdog_s=600)
    with at_work(engine, session):
        card = "document.querySelector('#flight-body article')"
        page.wait(
            f"{card}?.innerText",
            until=lambda text: "at work" in str(text) and "decode" in str(text) and "tokens so far" in str(text),
        )
        (record,) = engine.get("/v1/requests?running=1")["requests"]
        assert page.run(f"{card}.dataset.request") == record["id"]
        split = page.run(f"{card}.querySelector('.split').textContent")
        numbers = [
            int(n.replace(",", "")) for n in re.findall(r"(?:prompt|cached|replayed|new|anticipated) ([\d,]+)", split)
        ]
        assert numbers == [record[f"{name}_tokens"] for name in ("prompt", "cached", "replayed", "new", "anticipated")]
        assert fact(page, "running", "^1$") and fact(page, "decode_rate", r"^[\d.]+ tok/s$")
        page.wait(
            f"document.querySelector('[data-session={session['id']}]')?.innerText",
            until=lambda text: "thinking" in str(text),
        )
    engine.wait_idle(60)
    page.wait("document.getElementById('flight-body').innerText", until=lambda text: "Nothing is in flight" in text)


def test_an_agent_that_is_about_to_give_up_is_said_in_words(page: Page, engine: Engine) -> None:
    session = engine.session(name="in a hurry", watchdog_s=2)
    engine.client.post("/v1/engine/pause", json={"on": True}).raise_for_status()
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(at_work(engine, session, stream=False, tokens=4))
            page.wait(
                f"document.querySelector('[data-session={session['id']}]')?.innerText",
                until=lambda text: "\u2716 nearly over" in str(text),
            )
            page.wait(
                "document.getElementById('banner').innerText", until=lambda text: "in a hurry gives up in" in text
            )
            assert "prefill" in page.text(f"[data-session={session['id']}]")
            assert "admission paused" in page.text("#engine")
            engine.client.post("/v1/engine/pause", json={"on": False}).raise_for_status()
    finally:
        engine.client.post("/v1/engine/pause", json={"on": False})
    engine.wait_idle(60)
    page.wait("document.getElementById('banner').hidden")


def test_fifty_sessions_with_names_that_want_to_be_more_than_names(page: Page, engine: Engine) -> None:
    names = [HOSTILE[n % len(HOSTILE)] + (f" {n}" if n >= len(HOSTILE) else "") for n in range(50)]
    made = [engine.session(name=name)["id"] for name in names]
    try:
        page.wait("document.querySelectorAll('#sessions-body tbody tr').length", until=lambda n: n >= 50)
        shown = page.run(
            "Object.fromEntries([...document.querySelectorAll('[data-session]')].map((r) => [r.dataset.session, r.querySelector('.name').textContent]))"
        )
        for id_, name in zip(made[:4], HOSTILE[:4], strict=True):
            assert shown[id_] == name, "as it was given, as text"
        assert shown[made[4]] == "\u00b7gnp.exe\u00b7" and shown[made[5]] == "a\u00b7b\u00b7[31mc\u00b7d"
        assert page.run("document.querySelectorAll('img, iframe, object, body script').length") == 0
        assert page.run("document.querySelectorAll('#sessions svg').length") == 0
        for wide in (400, 900, 1600):
            page.resize(wide, 900)
            page.wait("innerWidth", until=lambda n, wide=wide: n == wide)
            page.wait(
                "document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll('main > section')].every((s) => s.scrollWidth <= s.clientWidth)"
            )
    finally:
        for id_ in made:
            engine.client.delete(f"/v1/sessions/{id_}").raise_for_status()


def test_everything_is_reached_by_keyboard(page: Page) -> None:
    page.run("document.body.focus()")
    reached: list[str] = []
    for _ in range(30):
        page.press("Tab")
        name = page.run(
            "(() => { const a = document.activeElement; return a.id || a.dataset.preset || a.textContent.slice(0, 20) })()"
        )
        if name in reached or page.run("document.activeElement === document.body"):
            break
        reached.append(name)
        outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", f"{name} does not show that it has the focus"
    for wanted in (
        "Close",
        "sessions-body",
        "flight-body",
        "kv",
        "minimum",
        "chat",
        "agent",
        "auto",
        "events-body",
        "ttft-of",
    ):
        assert wanted in reached, reached


CONTRAST = """(() => {
  const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const probe = document.createElement('span'); document.querySelector('#totals').append(probe);
  const of = (name) => { probe.style.color = `var(${name})`; return light(getComputedStyle(probe).color); };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const found = {};
  for (const name of ['--text', '--dim', '--ok', '--amber', '--red', '--accent', '--second']) found[name] = ratio(of(name), of('--pane'));
  for (const name of ['dense', 'kv', 'state', 'experts', 'work', 'lent']) found[name] = ratio(of(`--${name}`), of('--on'));
  for (const name of ['kvfree', 'free']) found[name] = ratio(of(`--${name}`), of('--on-light'));
  probe.remove();
  return found;
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(browser: Browser, engine: Engine, dark: bool) -> None:
    page = browser.open(invited(engine), dark=dark)
    fact(page, "state", "READY")
    ground = page.run("getComputedStyle(document.querySelector('main > section')).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") != dark
    assert {name: ratio for name, ratio in page.run(CONTRAST).items() if ratio < 4.5} == {}
    page.close()


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Somebody else's page on another port of this machine."""

    def do_GET(self) -> None:
        self.server.cookies.append(self.headers.get("cookie", ""))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>elsewhere</title><p>hello</p>")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_page_of_another_port_gets_nothing_though_the_cookie_reaches_it(
    browser: Browser, page: Page, engine: Engine
) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Elsewhere)
    server.cookies = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        other = browser.open(f"http://127.0.0.1:{server.server_port}/dashboard/x")
        other.wait("document.title == 'elsewhere'")
        stolen = next(cookie for cookie in server.cookies if f"ft_console_{engine.port}=" in cookie)  # type: ignore[attr-defined]
        for head in ("{}", "{'x-ft-console': 'x'}"):
            ask = f"fetch('{engine.url}/dashboard/v1/stats', {{credentials: 'include', headers: {head}}}).then((r) => r.text(), () => 'refused')"
            assert other.run(ask) == "refused"
        assert other.run("Object.keys(sessionStorage).length") == 0
        body = "JSON.stringify({kv_tokens: 4096})"
        before = engine.get("/v1/engine/memory")["kv"]["tokens"]
        other.run(
            f"fetch('{engine.url}/dashboard/v1/engine/memory/apply', {{method: 'POST', mode: 'no-cors', credentials: 'include', body: {body}}}).then(() => 1, () => 0)"
        )
        assert engine.get("/v1/engine/memory")["kv"]["tokens"] == before
        answer = httpx.get(f"{engine.url}/dashboard/v1/stats", headers={"cookie": stolen}, trust_env=False)
        assert answer.status_code == 401, "the cookie alone opens nothing"
        other.run(
            f"document.body.append(Object.assign(document.createElement('iframe'), {{src: '{engine.url}/dashboard'}}))"
        )
        assert (
            other.wait(
                "(() => { const f = document.querySelector('iframe'); try { return f.contentDocument ? '' : 'closed' } catch { return 'closed' } })()"
            )
            == "closed"
        )
        other.close()
    finally:
        server.shutdown()
        server.server_close()


def test_without_a_code_or_with_a_used_one_there_is_only_the_way_in(browser: Browser, engine: Engine) -> None:
    used = invited(engine)
    first = browser.open(used)
    fact(first, "state", "READY")
    first.close()
    for address in (f"{engine.url}/dashboard", used, f"{engine.url}/dashboard#nonsense"):
        page = browser.open(address)
        page.wait("document.getElementById('banner').innerText", until=lambda text: "ft console" in text)
        assert page.run("document.getElementById('main').hidden") and page.run("sessionStorage.length") == 0
        assert page.run("location.hash") == ""
        page.close()


def test_close_ends_the_grant(browser: Browser, engine: Engine) -> None:
    page = browser.open(invited(engine))
    fact(page, "state", "READY")
    page.run("document.querySelector('#engine button').click()")
    page.wait("document.getElementById('banner').innerText", until=lambda text: "closed" in text)
    page.call("Page.reload")
    page.wait("document.getElementById('banner').innerText", until=lambda text: "ft console" in text)
    assert page.run("document.getElementById('main').hidden")
    page.close()


def test_it_says_that_the_engine_has_stopped_and_goes_on_with_the_next(
    browser: Browser, models_dir: Path, tmp_path: Path
) -> None:
    """A real front each time, on the same port and runtime folder; its worker computes nothing."""
    port, runtime = free_port(), tmp_path / "run"
    (tmp_path / "control.json").write_text("{}")

    @contextlib.contextmanager
    def front() -> Iterator[httpx.Client]:
        arguments = [
            "--model",
            "tiny-hybrid",
            "--models-dir",
            str(models_dir),
            "--runtime-dir",
            str(runtime),
            "--port",
            str(port),
        ]
        env = {"FT_FAKE_WORKER": str(tmp_path / "control.json"), "PATH": "/usr/bin:/bin"}
        with (tmp_path / "output").open("ab") as output:
            process = subprocess.Popen(
                [*SERVE_FAKE, *arguments], env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                yield connected(process)
            finally:
                stop(process)

    def connected(process: subprocess.Popen[bytes]) -> httpx.Client:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as open_:
            while process.poll() is None:
                with contextlib.suppress(httpx.TransportError, OSError, KeyError, ValueError):
                    facts = json.loads((runtime / "engine.json").read_text())
                    if (
                        open_.get("/health").json()["nonce"] == facts["nonce"]
                        and open_.get("/ready").status_code == 200
                    ):
                        head = {"authorization": f"Bearer {facts['admin_token']}"}
                        return httpx.Client(base_url=open_.base_url, headers=head, trust_env=False, timeout=30)
        raise AssertionError((tmp_path / "output").read_text())

    with front() as client:
        page = browser.open(client.post("/v1/engine/console", json={}).json()["url"])
        fact(page, "state", "READY")
        assert fact(page, "saved", "^-$"), "no price is set"
        nonce = client.get("/health").json()["nonce"]
    page.wait(
        "document.getElementById('banner').innerText",
        until=lambda text: "has stopped" in text and "ft engine start" in text,
    )
    fact(page, "state", "STOPPED")
    assert "tiny-hybrid" in page.text("#engine"), "the last known stays"
    assert page.run("[...document.querySelectorAll('#memory-control button, #kv')].every((one) => one.disabled)")
    with front() as client:
        assert client.get("/health").json()["nonce"] != nonce
        fact(page, "state", "READY")
        page.wait("document.getElementById('banner').hidden")
        client.post("/v1/sessions", json={"harness": "test", "name": "after it"}).raise_for_status()
        page.wait("document.getElementById('sessions-body').innerText", until=lambda text: "after it" in text)
    page.close()

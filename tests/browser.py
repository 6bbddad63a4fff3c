"""A real Chromium without a window, spoken to over a pipe in the DevTools protocol: no port, no library, no driver.

with Browser(folder) as browser: page = browser.open(url); page.wait("document.title")
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
LIMIT_S = 60.0
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--password-store=basic", "--use-mock-keychain", "--hide-scrollbars", "--force-color-profile=srgb",
    "--proxy-server=direct://", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost", "--mute-audio",
)  # fmt: skip


def find() -> str | None:
    """A Chromium on PATH."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Broken(Exception):
    """The browser has ended, or answers no more."""


class Browser:
    """One browser with a profile below `folder`; its pages share cookies. One thread."""

    def __init__(self, folder: Path, executable: str | None = None) -> None:
        program = executable or find()
        assert program is not None, "no Chromium on PATH"
        reads, tells = os.pipe()  # it reads its commands here
        hears, writes = os.pipe()
        for end in (reads, writes):  # 3 and 4 are its own numbers for them
            os.set_inheritable(end, True)
        # A browser of root has no sandbox of its own to go to.
        sandbox = [] if os.geteuid() != 0 else ["--no-sandbox"]
        profile = folder / "profile"
        shell = f'exec "$0" "$@" 3<&{reads} 4>&{writes}'
        command = ["bash", "-c", shell, program, *FLAGS, *sandbox, f"--user-data-dir={profile}", "about:blank"]
        with (folder / "browser.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(reads, writes), start_new_session=True,
                env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)},
            )  # fmt: skip
        os.close(reads)
        os.close(writes)
        self._tell, self._hear = tells, hears
        fcntl.fcntl(self._hear, fcntl.F_SETFL, os.O_NONBLOCK)
        self._rest = b""
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        os.close(self._tell)
        os.close(self._hear)

    def open(self, url: str = "about:blank", wide: int = 1280, high: int = 900, dark: bool = False) -> Page:
        """A tab of its own."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.resize(wide, high)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        if url != "about:blank":
            page.go(url)
        return page

    def call(self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None) -> dict[str, Any]:
        """Raises AssertionError on an error answer."""
        number = next(self._numbers)
        told = {"id": number, "method": method, "params": parameters or {}} | (
            {"sessionId": session} if session else {}
        )
        os.write(self._tell, json.dumps(told).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_S
        while number not in self._answers:
            self.listen(deadline - time.monotonic())
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def listen(self, limit_s: float) -> None:
        """Take in what comes within the limit. Raises Broken when nothing can come any more, or did."""
        if not select.select([self._hear], [], [], max(0.0, limit_s))[0]:
            raise Broken(f"the browser is silent (exit code {self._process.poll()})")
        chunk = os.read(self._hear, 1 << 20)
        if not chunk:
            raise Broken(f"the browser has ended with {self._process.wait(10)}")
        *whole, self._rest = (self._rest + chunk).split(b"\0")
        for raw in whole:
            message = json.loads(raw)
            if "id" in message:
                self._answers[message["id"]] = message
            elif message.get("sessionId") in self._pages:
                self._pages[message["sessionId"]].note(message["method"], message["params"])


class Page:
    """One tab. `requests` are the addresses it asked for, `complaints` its uncaught errors and what its policy refused."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def note(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"])[:2000])
        elif method == "Log.entryAdded" and parameters["entry"]["source"] in ("security", "javascript", "violation"):
            self.complaints.append(parameters["entry"]["text"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, parameters, self._session)

    def close(self) -> None:
        self.call("Page.close")

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def resize(self, wide: int, high: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=wide, height=high, deviceScaleFactor=1, mobile=False)

    def run(self, script: str) -> Any:
        """The JSON value of an expression, promises awaited. Raises AssertionError when it throws."""
        answer = self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            allowUnsafeEvalBlockedByCSP=False,
        )
        assert "exceptionDetails" not in answer, (script, answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, script: str, limit_s: float = LIMIT_S, until: Callable[[Any], bool] = bool) -> Any:
        """The first value of the expression that `until` takes. A page on its way elsewhere is asked again."""
        deadline = time.monotonic() + limit_s
        value: Any = None
        while True:
            try:
                value = self.run(script)
                if until(value):
                    return value
            except AssertionError as error:
                value = error
            assert time.monotonic() < deadline, f"{script} was last {value!r}\n{self.complaints}\n{self.text()}"
            time.sleep(0.05)

    def text(self, of: str = "body") -> str:
        found: str = self.run(f"document.querySelector({json.dumps(of)})?.innerText ?? ''")
        return found

    def press(self, key: str, times: int = 1) -> None:
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
                code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], **text}
                self.call("Input.dispatchKeyEvent", type=kind, **code)

    def picture(self, whole: bool = False) -> bytes:
        """A PNG of what is seen, or of the whole page."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

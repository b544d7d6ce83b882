"""A headless Chromium, spoken to over its DevTools protocol: all that tests of a page need, without a framework."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60.0


def program() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@contextmanager
def browser(folder: Path):
    """A browser of its own: `folder` holds its profile. Ended with all its processes, whatever happens."""
    from websockets.sync.client import connect

    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0"]
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"]
    process = subprocess.Popen(
        [program(), *options, *quiet, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port, path = _endpoint(folder / "DevToolsActivePort", process)
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, compression=None, proxy=None) as socket:
            yield Browser(socket)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _endpoint(file: Path, process: subprocess.Popen) -> list[str]:
    """Where it listens: it writes that down once it does."""
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE and process.poll() is None:
        lines = file.read_text().split() if file.exists() else []
        if len(lines) == 2:
            return lines
        time.sleep(0.05)
    raise RuntimeError(f"{program()} did not start")


class Browser:
    def __init__(self, socket: Any):
        self._socket, self._number = socket, 0
        self._pages: dict[str, Page] = {}

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """A page of its own, loaded and drawn."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        mobile = width < 500
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.navigate", url=path.resolve().as_uri())
        page.wait_for("document.readyState === 'complete' && (viewer === null || viewer.ready)")
        return page

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The answer to a command; what happens meanwhile is told to the page it happens in."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps({**message, "sessionId": session} if session else message))
        while True:
            heard = json.loads(self._socket.recv(timeout=PATIENCE))
            if heard.get("id") == number:
                if "error" in heard:
                    raise RuntimeError(f"{method}: {heard['error']['message']}")
                return heard["result"]
            if heard.get("sessionId") in self._pages:
                self._pages[heard["sessionId"]].hear(heard["method"], heard["params"])


class Page:
    """`complaints`: what the page wrote to its console as warnings and errors. `asked_for`: what it wanted to fetch."""

    def __init__(self, browser: Browser, session: str):
        self._browser, self._session = browser, session
        self.complaints: list[str] = []
        self.asked_for: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def hear(self, event: str, about: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(about["args"]))
        elif event == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.asked_for.append(about["request"]["url"])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        begun = time.monotonic()
        while time.monotonic() - begun < PATIENCE:
            try:
                if self.evaluate(expression):
                    return
            except RuntimeError:  # the page that was there before is being replaced
                pass
            time.sleep(0.02)
        raise AssertionError(f"it never came to be that {expression}; the page said {self.complaints}")

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "End": 35, "Home": 36, " ": 32}
        code = {"windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def click(self, selector: str) -> None:
        """With the mouse, where the element is."""
        place = f"(e => (e.scrollIntoView({{block: 'center'}}), e.getBoundingClientRect().toJSON()))({selector})"
        box = self.evaluate(place)
        middle = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **middle)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

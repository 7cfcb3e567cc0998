"""A real browser, driven by WebDriver's protocol: JSON over HTTP, so it takes no package."""

import base64
import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
POINTER = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}


def why_none() -> str:
    """What is missing for a browser; empty where nothing is."""
    if not shutil.which("chromedriver"):
        return "no chromedriver is installed (Debian: apt install chromium-driver)"
    if not any(map(shutil.which, BROWSERS)):
        return "no Chromium is installed (Debian: apt install chromium)"
    return ""


class WebBrowser:
    """Headless Chromium with a profile of its own."""

    def __init__(self, profile: Path) -> None:
        driver = shutil.which("chromedriver")
        assert driver is not None
        self._process = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            self._base = f"http://127.0.0.1:{self._port()}"
            made = self._send("POST", "/session", _wanted(profile))
            self._base += f"/session/{made['sessionId']}"
        except BaseException:
            self._stop()
            raise

    def _port(self) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "started successfully on port" in line:
                return int(line.rstrip(" .\n").rpartition(" ")[2])
        raise RuntimeError("chromedriver ended before it had a port")

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method == "GET" else json.dumps(body or {}).encode()
        asked = urllib.request.Request(self._base + path, data, method=method)
        with urllib.request.urlopen(asked, timeout=200) as answer:
            return json.load(answer)["value"]

    def open(self, page: Path) -> None:
        """The page, when it has drawn itself; without words of an earlier one."""
        self.errors()
        self._send("POST", "/url", {"url": page.as_uri()})
        self.wait("window.tardigrad !== undefined")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        code = f"""const done = arguments[0];
            const look = () => ({condition}) ? done(true) : setTimeout(look, 20);
            look();"""
        self._send("POST", "/timeouts", {"script": 120_000})
        self._send("POST", "/execute/async", {"script": code, "args": []})

    def js(self, expression: str) -> Any:
        return self._send("POST", "/execute/sync", {"script": f"return {expression}", "args": []})

    def errors(self) -> list[str]:
        """What the console has got since it was asked last, but for advice on reading pixels, which
        only tests do."""
        lines = self._send("POST", "/se/log", {"type": "browser"})
        return [e["message"] for e in lines if "willReadFrequently" not in e["message"]]

    def prefer(self, scheme: str) -> None:
        """Light or dark, as the system would say it."""
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        call = {"cmd": "Emulation.setEmulatedMedia", "params": media}
        self._send("POST", "/goog/cdp/execute", call)

    def click(self, selector: str) -> None:
        self.js(f"document.querySelector({json.dumps(selector)}).click()")

    def point(self, x: float, y: float) -> None:
        self._act([{**POINTER, "actions": [_moved(x, y)]}])

    def drag(self, x: float, y: float, to_x: float) -> None:
        down, up = ({"type": f"pointer{way}", "button": 0} for way in ("Down", "Up"))
        self._act([{**POINTER, "actions": [_moved(x, y), down, _moved(to_x, y), up]}])

    def wheel_with_ctrl(self, x: float, y: float, by: int) -> None:
        control, pause = "\ue009", {"type": "pause"}
        keys = [{"type": "keyDown", "value": control}, pause, {"type": "keyUp", "value": control}]
        turn = {"type": "scroll", "x": int(x), "y": int(y), "deltaX": 0, "deltaY": by}
        wheel = {"type": "wheel", "id": "wheel", "actions": [pause, turn, pause]}
        self._act([{"type": "key", "id": "keys", "actions": keys}, wheel])

    def _act(self, actions: list[dict[str, Any]]) -> None:
        self._send("POST", "/actions", {"actions": actions})

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._send("GET", "/screenshot")))

    def close(self) -> None:
        try:
            self._send("DELETE", "")
        finally:
            self._stop()

    def _stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _wanted(profile: Path) -> dict[str, Any]:
    words = ["--headless=new", "--window-size=1400,1000", f"--user-data-dir={profile}"]
    words += ["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    words += ["--no-sandbox"] if os.geteuid() == 0 else []
    binary = next(found for found in map(shutil.which, BROWSERS) if found)
    options = {"binary": binary, "args": words}
    logs = {"browser": "ALL"}
    asked = {"goog:chromeOptions": options, "goog:loggingPrefs": logs}
    return {"capabilities": {"alwaysMatch": asked}}


def _moved(x: float, y: float) -> dict[str, Any]:
    where = {"x": round(x), "y": round(y), "origin": "viewport"}
    return {"type": "pointerMove", "duration": 0, **where}

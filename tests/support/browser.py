"""A headless Chromium, driven over its DevTools protocol; Debian's package `chromium`."""

from __future__ import annotations

import asyncio
import json
import shutil
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or ""
_WAIT_S: Final = 60.0
_OPTIONS: Final = (
    "--headless=new",
    "--no-sandbox",  # which root cannot have
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)


class Page:
    """One page of a browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.requested: list[str] = []
        """URLs of all requests of the page."""
        self.complaints: list[str] = []
        """What the page wrote to the console as errors, and violations of its policy."""

    async def send(self, method: str, **parameters: Any) -> Any:
        """Send a command; return its result."""
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(_WAIT_S):
            while True:
                told = await self._socket.receive_json()
                if told.get("id") == number:
                    assert "error" not in told, told
                    return told["result"]
                self._note(told)

    def _note(self, told: Any) -> None:
        parameters = told.get("params", {})
        if told.get("method") == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif told.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(parameters["entry"]["text"])
        elif told.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))

    async def open(self, url: str, width: int = 1000, *, dark: bool = False) -> None:
        """Show a URL."""
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.send(f"{domain}.enable")
        await self.resize(width)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])
        await self.send("Page.navigate", url=url)

    async def resize(self, width: int, height: int = 900) -> None:
        """Set the size of the window."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript; await a promise."""
        told = await self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(_WAIT_S):
            while not await self.run(f"Boolean({condition})"):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)

    async def press(self, key: str) -> None:
        """Press and release a key: a character, Tab or Enter."""
        codes = {"Tab": 9, "Enter": 13}
        text = {"Tab": "", "Enter": "\r"}.get(key, key)
        code = codes.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            await self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )

    async def write(self, text: str) -> None:
        """Enter a text where the focus is."""
        await self.send("Input.insertText", text=text)

    async def picture(self) -> bytes:
        """Return the window as PNG."""
        return b64decode((await self.send("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[Page]:
    """Yield a page of a new browser, whose files are in `folder`."""
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *_OPTIONS,
        f"--user-data-dir={folder / 'profile'}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_WAIT_S):
            while b"listening on ws://" not in (line := await process.stderr.readline()):
                assert line, "the browser has ended"
        place = line.decode().partition("ws://")[2].partition("/")[0]
        draining = asyncio.ensure_future(process.stderr.read())
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{place}/json/list") as answer:
                pages = json.loads(await answer.text())
            [page] = [each for each in pages if each["type"] == "page"]
            async with session.ws_connect(
                page["webSocketDebuggerUrl"], max_msg_size=64 << 20
            ) as socket:
                yield Page(socket)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await draining

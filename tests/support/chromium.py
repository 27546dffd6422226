"""A real headless Chromium, the system's own, driven by Playwright."""

from __future__ import annotations

import base64
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page, sync_playwright

AXE = find_spec("axe_core_python")
BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
PATIENCE = 90_000
"""The milliseconds after which a browser that does not answer counts as broken."""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Chromium:
    """A browser with one open page."""

    def __init__(self) -> None:
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        self._context: BrowserContext | None = None
        self._complaints: list[str] = []
        self._requests: list[str] = []
        self.page: Page

    def close(self) -> None:
        self._browser.close()
        self._playwright.stop()

    def open(
        self,
        path: Path,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        pixels_per_point: int = 1,
    ) -> None:
        """Open a file in a window of this size and wait until it has loaded."""
        if self._context is not None:
            self._context.close()
        self._context = self._browser.new_context(
            viewport={"width": width, "height": height},
            device_scale_factor=pixels_per_point,
            is_mobile=width < 600,
            color_scheme="dark" if dark else "light",
        )
        self._context.set_default_timeout(PATIENCE)
        self._complaints.clear()
        self._requests.clear()
        self.page = self._context.new_page()
        self.page.on("pageerror", lambda error: self._complaints.append(str(error)))
        self.page.on("console", lambda message: self._hear(message.type, message.text))
        self.page.on("request", lambda request: self._requests.append(request.url))
        self.page.goto(path.as_uri())

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning", "assert"):
            self._complaints.append(text)

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, awaited."""
        return self.page.evaluate(expression)

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        self.page.wait_for_function(f"() => Boolean({condition})")

    def press(self, key: str) -> None:
        """Press one key, such as Escape or Tab."""
        self.page.keyboard.press(key)

    def picture(self, path: Path, whole: bool = False) -> None:
        """Save a screenshot as PNG: what is in the window, or the whole page."""
        self.page.screenshot(path=path, full_page=whole)

    def saved_by(self, action: str, name: str) -> bytes:
        """Return the file that a JavaScript expression makes the page save under this name."""
        with self.page.expect_download() as download:
            self.run(action)
        assert download.value.suggested_filename == name
        return download.value.path().read_bytes()

    def copied_picture(self, button: str) -> bytes:
        """Return the PNG that the button of a CSS selector puts into the clipboard."""
        assert self._context is not None
        self._context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page.locator(button).click()
        self.page.get_by_text("Copied", exact=True).wait_for()
        encoded = self.run(
            """navigator.clipboard.read().then((items) => items[0].getType('image/png')).then((blob) => new Promise((done) => {
                const reader = new FileReader();
                reader.onload = () => done(reader.result.split(',')[1]);
                reader.readAsDataURL(blob);
            }))"""
        )
        return base64.b64decode(encoded)

    def complaints(self) -> list[str]:
        """Return errors and warnings of the console, exceptions, and messages of the content policy."""
        self.run("1")  # so that all events so far have arrived
        return list(self._complaints)

    def requests(self) -> list[str]:
        """Return every address that was asked for since the page was opened, without pictures inside the page."""
        return [url for url in self._requests if not url.startswith(("data:", "blob:"))]

    def violations(self) -> list[tuple[str, list[str]]]:
        """Return what axe-core finds serious or critical on the page, with everything opened: rule and places."""
        assert AXE is not None and AXE.origin is not None
        self.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        self.run(Path(AXE.origin).with_name("axe.min.js").read_text(encoding="utf-8") + "; 0")
        violations = self.run(
            "axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations)"
        )
        serious = [v for v in violations if v["impact"] in ("serious", "critical")]
        return [(v["id"], [node["html"][:200] for node in v["nodes"][:3]]) for v in serious]

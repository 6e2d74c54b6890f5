"""Debian's Chromium, driven by Selenium: it notes what a page logs, and every host that it asks."""

from __future__ import annotations

import json
import shutil
from typing import Any
from urllib.parse import urlsplit

import pytest

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="selenium is not installed: pip install selenium"
)

from selenium.webdriver.chrome.service import Service  # noqa: E402 - after it is known to be there
from selenium.webdriver.common.by import By  # noqa: E402 - same
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402 - same

DEADLINE_S = 30.0


class Browser:
    """One window."""

    def __init__(self, origin: str, profile: str) -> None:
        chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if chromium is None or driver is None:
            pytest.skip("no browser: apt-get install chromium chromium-driver")
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for word in (
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
        ):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.origin = origin
        self.driver: Any = webdriver.Chrome(options=options, service=Service(driver))  # Any: Selenium's own
        self.resize(1_600, 1_000)

    def open(self, path: str) -> None:
        """Load a page; it is as wide as the window, also when that was just resized."""
        self.driver.get(f"{self.origin}{path}")
        self.wait_until(f"innerWidth === {self._width}")

    def resize(self, width: int, height: int) -> None:
        self._width = width
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def text(self) -> str:
        found: str = self.value_of(
            "document.body.innerText"
        )  # at once: an element may be gone by the next call
        return found

    def wait_for(self, words: str) -> None:
        WebDriverWait(self.driver, DEADLINE_S).until(
            lambda _: words in self.text(), f"{words!r} in {self.text()}"
        )

    def click(self, selector: str) -> None:
        WebDriverWait(self.driver, DEADLINE_S).until(
            lambda driver: driver.find_elements(By.CSS_SELECTOR, selector), selector
        )
        self.driver.execute_script(f"document.querySelector({json.dumps(selector)}).click()")

    def keys(self, *keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def value_of(self, script: str) -> Any:  # noqa: ANN401 - whatever the script returns
        return self.driver.execute_script(f"return {script}")

    def wait_until(self, script: str) -> None:
        WebDriverWait(self.driver, DEADLINE_S).until(lambda _: self.value_of(script), script)

    def too_wide(self) -> list[str]:
        """What makes the page scroll sideways."""
        found: list[str] = self.value_of(
            "document.documentElement.scrollWidth <= innerWidth ? []"
            ": [...document.querySelectorAll('body *')]"
            ".filter(each => each.getBoundingClientRect().right > innerWidth && !each.closest('.scroll'))"
            ".map(each => each.outerHTML.slice(0, 99)).concat([document.documentElement.scrollWidth])"
        )
        return found

    def complaints(self) -> list[str]:
        """Everything that was logged: errors, warnings, violations of the policy."""
        return [str(entry) for entry in self.driver.get_log("browser")]

    def hosts(self) -> set[str]:
        """All hosts that were asked for something since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]
        return {
            urlsplit(url).netloc for url in urls if urlsplit(url).scheme not in {"data", "chrome", "about"}
        }

    def close(self) -> None:
        self.driver.quit()

"""A real browser without a window: Debian's chromium, driven by selenium."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

Driver: TypeAlias = Chrome


@contextmanager
def chromium(*, width: int = 1440, height: int = 1000, scale: float = 1.0) -> Iterator[Driver]:
    """A browser with a page of this many CSS pixels, light until `emulate` says otherwise."""
    options = ChromeOptions()
    options.binary_location = _program_path("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # chromium's sandbox refuses to run as root
    for argument in arguments:
        options.add_argument(argument)
    driver = Chrome(options=options, service=Service(_program_path("chromedriver")))
    try:
        resize(driver, width, height, scale=scale)
        emulate(driver)
        driver.set_page_load_timeout(60)
        yield driver
    finally:
        driver.quit()


def resize(driver: Driver, width: int, height: int, *, scale: float = 1.0) -> None:
    """Resize the page; a window could not be narrower than some 500 pixels."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def emulate(driver: Driver, *, dark: bool = False, calm: bool = False) -> None:
    """Have the system prefer dark colours, or less motion."""
    preferences = {
        "prefers-color-scheme": "dark" if dark else "light",
        "prefers-reduced-motion": "reduce" if calm else "no-preference",
    }
    features = [{"name": name, "value": value} for name, value in preferences.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def _program_path(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise FileNotFoundError(
            f"no {program} on the PATH; wanted Debian's: apt-get install chromium chromium-driver"
        )
    return path

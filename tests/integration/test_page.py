"""The page in a real browser: opened from disk, filtered, clicked and walked by keyboard."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from builders import a_cell, a_report_row
from node_packages import node_packages
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from warpfront.matrix.cell import Toolkit
from warpfront.report.history import Trend
from warpfront.report.page import STATES, page_html

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        not shutil.which("chromium") or not shutil.which("chromedriver"),
        reason="no browser: apt-get install chromium chromium-driver",
    ),
]

RESULTS = 2000
TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120")
LIMIT_MILLISECONDS = 100.0


def a_big_page(results: int = RESULTS) -> str:
    """2,000 results: 100 torches, five images, four targets; a state in turn. Or fewer."""
    pairs = []
    for number in range(results):
        torch, rest = divmod(number, 20)
        image, target = f"image{rest // 4}", TARGETS[rest % 4]
        state = tuple(STATES)[number % len(STATES)]
        cell = a_cell(
            id=f"nvidia-{torch}-{image}",
            vendor="nvidia",
            toolkit=Toolkit(name="cuda", version="13.0"),
            torch=f"2.{torch}.0",
            image=image,
        )
        word = "-" if state in {"missing", "blocked"} else state
        built = "blocked" if state == "blocked" else "built"
        row = a_report_row(cell_id=cell.id, target=target, verify=word, build=built, reason="<b>")
        pairs.append((cell, dataclasses.replace(row, repeat=f"warpfront verify --only {cell.id}")))
    return page_html(pairs, title="2,000 results", made="today", trends=some_trends(results))


def some_trends(results: int) -> list[Trend]:
    """60 nights each, of a tenth of the cells; every second changed in the middle."""
    return [
        Trend(
            cell_id=f"nvidia-{number}-image0",
            target="sm_90",
            name=f"mm/{number}",
            place=f"nvidia-{number}-image0 sm_90 NVIDIA H100",
            at=tuple(f"2026-{1 + night // 28:02}-{1 + night % 28:02}" for night in range(60)),
            times=tuple(1 + 0.01 * ((night * 7919) % 13) + (night >= 30) for night in range(60)),
            change=30 if number % 2 else None,
            said="2.000 times its time since 2026-02-03, image 0123456789ab",
        )
        for number in range(results // 10)
    ]


@contextmanager
def a_browser(folder: Path) -> Iterator[webdriver.Chrome]:
    """Chromium, with its profile in `folder`."""
    options = webdriver.ChromeOptions()
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    try:
        yield browser
    finally:
        browser.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    folder = tmp_path_factory.mktemp("page")
    file = folder / "index.html"
    file.write_text(a_big_page(), encoding="utf-8")
    with a_browser(folder) as browser:
        browser.get(file.as_uri())
        yield browser


def script(page: webdriver.Chrome, text: str) -> Any:
    return page.execute_script(text)


def shown(page: webdriver.Chrome) -> int:
    tiles = "document.querySelectorAll('button.tile:not([hidden])').length"
    return int(script(page, f"return {tiles}"))


def test_it_opens_from_disk_and_says_nothing_wrong(page: webdriver.Chrome) -> None:
    assert shown(page) == RESULTS
    assert page.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert script(page, "return performance.getEntriesByType('resource').length") == 0


def violations(page: webdriver.Chrome) -> list[str]:
    """What axe-core has against the page as it is: its rule, and the first place."""
    axe = node_packages() / "node_modules" / "axe-core" / "axe.min.js"
    page.execute_script(axe.read_text(encoding="utf-8"))
    found = page.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, {resultTypes: ['violations']}).then(r => done(r.violations.map("
        "v => `${v.id}: ${v.nodes[0].target} ${v.nodes[0].failureSummary}`)))"
    )
    return [str(one) for one in found]


@pytest.fixture
def small_page(page: webdriver.Chrome, tmp_path: Path) -> Iterator[webdriver.Chrome]:
    """Every state, few results: axe looks at each element for a while."""
    file = tmp_path / "index.html"
    file.write_text(a_big_page(60), encoding="utf-8")
    before = page.current_url
    page.get(file.as_uri())
    yield page
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    page.get(before)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_grid_and_in_what_a_click_opens(
    small_page: webdriver.Chrome, scheme: str
) -> None:
    small_page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    assert violations(small_page) == []
    # axe scrolls: a click that scrolls back may meet the tile that was there before.
    script(
        small_page, "document.querySelector('button.tile').scrollIntoView({behavior: 'instant'})"
    )
    small_page.find_element(By.CSS_SELECTOR, "button.tile").click()
    assert violations(small_page) == []


def test_axe_finds_a_seeded_fault(small_page: webdriver.Chrome) -> None:
    script(small_page, "document.documentElement.removeAttribute('lang')")
    assert any(one.startswith("html-has-lang") for one in violations(small_page))


def test_a_filter_of_2000_results_is_faster_than_is_noticed(page: webdriver.Chrome) -> None:
    """The median of nine, of what the browser's main thread has used of a processor from the key
    to the second frame after it: script, style, layout and paint. What else the machine does is
    not in it.
    """
    find = page.find_element(By.NAME, "find")
    page.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    took: dict[str, list[float]] = {}
    try:
        for _ in range(9):
            for key in ("9", Keys.BACKSPACE):
                took.setdefault(key, []).append(used_by(page, find, key))
    finally:
        page.execute_cdp_cmd("Performance.disable", {})
    assert shown(page) == RESULTS
    print({key: round(median(each), 1) for key, each in took.items()})
    assert max(median(each) for each in took.values()) < LIMIT_MILLISECONDS, took
    assert min(map(min, took.values())) > 0.1, "nothing was measured"


def used_by(page: webdriver.Chrome, field: WebElement, key: str) -> float:
    """Milliseconds of a processor."""
    before = thread_seconds(page)
    field.send_keys(key)
    page.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done));"
    )
    return 1000 * (thread_seconds(page) - before)


def test_a_filter_that_is_slow_is_found(small_page: webdriver.Chrome) -> None:
    script(
        small_page,
        "document.getElementById('filters').addEventListener('input', () => {"
        "const end = performance.now() + 500; while (performance.now() < end); });",
    )
    small_page.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    try:
        found = used_by(small_page, small_page.find_element(By.NAME, "find"), "9")
    finally:
        small_page.execute_cdp_cmd("Performance.disable", {})
    assert found > LIMIT_MILLISECONDS


def thread_seconds(page: webdriver.Chrome) -> float:
    told = page.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(one["value"] for one in told if one["name"] == "TaskDuration"))


def test_nights_open_by_keyboard_and_are_told_apart(page: webdriver.Chrome) -> None:
    first = page.find_element(By.CSS_SELECTOR, ".trend summary")
    assert not page.find_element(By.CSS_SELECTOR, ".trend ol").is_displayed()
    first.send_keys(Keys.ENTER)
    assert page.find_element(By.CSS_SELECTOR, ".trend ol").is_displayed()
    first.send_keys(Keys.ENTER)
    assert not page.find_element(By.CSS_SELECTOR, ".trend ol").is_displayed()
    names = [one.text for one in page.find_elements(By.CSS_SELECTOR, ".trend summary .unseen")]
    assert len(set(names)) == len(names) == RESULTS // 10
    script(page, "scrollTo(0, 0)")


def test_filters_add_up_and_stand_in_the_address(page: webdriver.Chrome) -> None:
    find = page.find_element(By.NAME, "find")
    find.send_keys("sm_90 image3")
    assert shown(page) == 100
    page.find_element(By.CSS_SELECTOR, "select[name=state] option[value=failed], option").click()
    assert "find=sm_90" in page.current_url
    assert page.find_element(By.NAME, "shown").text == "100 shown"
    find.send_keys(Keys.CONTROL, "a")
    find.send_keys(Keys.DELETE)
    assert shown(page) == RESULTS


def test_a_click_shows_the_reason_as_text_and_escape_closes_it(page: webdriver.Chrome) -> None:
    tile = page.find_element(By.CSS_SELECTOR, "button.tile")
    # Rows get their height when they are first seen: a click waits until the page is still.
    script(page, "document.querySelector('button.tile').scrollIntoView({block: 'center'})")
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    tile.click()
    dialog = page.find_element(By.ID, "details")
    assert dialog.is_displayed()
    assert "<b>" in dialog.text
    assert "warpfront verify --only nvidia-0-image0" in dialog.text
    dialog.send_keys(Keys.ESCAPE)
    assert not dialog.is_displayed()
    # Where it was opened, one goes on.
    assert page.switch_to.active_element == tile


def test_a_command_is_copied_or_selected(page: webdriver.Chrome) -> None:
    button = page.find_element(By.CSS_SELECTOR, "button.copy")
    script(page, "document.querySelector('button.copy').scrollIntoView({block: 'center'})")
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    button.click()
    WebDriverWait(page, 10).until(lambda _: button.text in {"copied", "selected"})
    if button.text == "selected":
        assert script(page, "return String(getSelection())") == button.get_attribute("data-copy")


def test_it_can_be_walked_by_keyboard(page: webdriver.Chrome) -> None:
    first, second = page.find_elements(By.CSS_SELECTOR, "button.tile")[:2]
    script(page, "document.querySelector('button.tile').focus()")
    assert page.switch_to.active_element == first
    page.switch_to.active_element.send_keys(Keys.TAB)
    assert page.switch_to.active_element == second
    page.switch_to.active_element.send_keys(Keys.ENTER)
    assert page.find_element(By.ID, "details").is_displayed()
    page.switch_to.active_element.send_keys(Keys.ENTER)
    assert not page.find_element(By.ID, "details").is_displayed()


def test_states_differ_in_more_than_colour(page: webdriver.Chrome) -> None:
    labels = script(
        page,
        "return [...new Set([...document.querySelectorAll('button.tile')]"
        ".map((tile) => tile.textContent.trim()[0]))]",
    )
    assert sorted(labels) == sorted(STATES.values())


def test_what_is_said_can_be_read_on_both_grounds(page: webdriver.Chrome) -> None:
    """At least 4.5 to 1, as WCAG's AA asks of text."""
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        text, back = script(
            page,
            "const {color, backgroundColor} = getComputedStyle(document.body); "
            "return [color, backgroundColor].map((c) => c.match(/[0-9]+/g).map(Number))",
        )
        bright, dark = sorted((luminance(text), luminance(back)), reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, scheme


def luminance(colour: list[int]) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in colour[:3])
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_it_prints_without_its_filters(page: webdriver.Chrome) -> None:
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert not page.find_element(By.ID, "filters").is_displayed()
        assert page.find_element(By.CSS_SELECTOR, "table.list").is_displayed()
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_screens_are_there_for_people(page: webdriver.Chrome, tmp_path: Path) -> None:
    file = tmp_path / "page.png"
    assert page.save_screenshot(str(file))
    assert file.stat().st_size > 10_000

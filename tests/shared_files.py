"""Files of tests that several pytests share: each of them runs the files that it takes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpfront.system.digests import digest_of


class SharedFiles:
    """Pass over the tests of a file that another process has taken, by a file in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own: dict[Path, bool] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        if item.path not in self.own:
            self.own[item.path] = self._take(item.path)
        if self.own[item.path]:
            return None
        # What is set up is what the next test needs, as after a test that ran.
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def _take(self, path: Path) -> bool:
        try:
            (self.folder / digest_of(str(path))).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

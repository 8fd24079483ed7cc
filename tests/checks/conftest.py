"""These tests need torch: `scripts/test checks` has the CPU build of this repository's own lock."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

import pytest

from warpfront_checks.children import open_nursery

# torch's operator database asks for it as it is imported: a program, where Python does not know.
platform.processor()

# Children compute with one thread, as these tests do; and Inductor builds no program to find out
# which vectors this machine has, which takes longer than the function that is compiled.
os.environ |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0"}


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tests run side by side, and threads that wait for each other would take ten times as long."""
    torch = pytest.importorskip("torch", reason="torch is not installed: see scripts/test checks")
    torch.set_num_threads(1)


@pytest.fixture
def forks() -> Iterator[None]:
    """Children are forks of this process, as those of a session are. A child that is a Python of
    its own, as where there is no fork server, is in test_architectures.py.
    """
    with open_nursery():
        yield

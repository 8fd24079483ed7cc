"""AMD's names on PyPI are empty packages: none of them meets a requirement."""

from __future__ import annotations

import pytest

from warpfront.wheels.lock.pylock import placeholder
from warpfront.wheels.lock.values import PYPI, LockedWheel

AMDS = "https://stable.repo.amd.com/rocm/whl-next"


def wheel(name: str, index: str = PYPI) -> LockedWheel:
    return LockedWheel(
        name=name,
        version="0.0.1.dev0",
        filename=f"{name.replace('-', '_')}-0.0.1.dev0-py3-none-any.whl",
        sha256="0" * 64,
        size_bytes=1,
        index=index,
    )


@pytest.mark.parametrize(
    "name",
    [
        "rocm",
        "rocm-sdk",
        "rocm-sdk-core",
        "rocm-sdk-device-gfx942",
        "rocm-kpack",
        "amd-torch-device",
        "amd-torch-device-gfx12-0",
        "amd-torchvision-device-all",
    ],
)
def test_an_empty_package_of_pypi_is_named_and_the_real_one_is_not(name: str) -> None:
    said = f"{name} 0.0.1.dev0 of PyPI, an empty package with AMD's name"
    assert placeholder([wheel("numpy"), wheel(name)]) == said
    assert placeholder([wheel(name, AMDS)]) == ""


@pytest.mark.parametrize("name", ["rocm-bootstrap", "torch", "amd-aiter", "amdsmi", "rocm-docs"])
def test_other_packages_of_amd_on_pypi_are_what_they_are(name: str) -> None:
    assert placeholder([wheel(name)]) == ""

"""The tables of architectures, read from the source of a library that is not imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from warpfront_checks.architectures.roster import (
    Architecture,
    LibraryError,
    architectures,
    chosen,
    library_version,
)

# In the forms that releases have had: pairs, a dict, more than one class, another table's entries.
TABLES = """
import half_of_the_library
from collections import OrderedDict

MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("gpt", "GptLM"), ("llama", "LlamaLM")])
MODEL_FOR_MASKED_LM_MAPPING_NAMES: OrderedDict[str, str] = OrderedDict({"bert": ("BertLM", "Old")})
MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES = OrderedDict([("llava", "Llava")])
MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES = OrderedDict(
    [*list(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.items()), ("clip", "Clip")]
)
MODEL_MAPPING = half_of_the_library.lazy(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
"""
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A library of that name with this source, the only one there is."""

    def install(tables: str = TABLES, package: str = 'import sys\n__version__ = "5.9"\n') -> Path:
        folder = tmp_path / "transformers"
        auto = folder / "models" / "auto"
        auto.mkdir(parents=True)
        (folder / "__init__.py").write_text(package)
        (auto / "modeling_auto.py").write_text(tables)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        return folder

    return install


def test_tables_of_every_form_are_read_without_what_their_module_imports(install: Install) -> None:
    install()
    assert library_version() == "5.9"
    known = {(one.name, one.kind, one.model) for one in architectures()}
    assert {("gpt", "causal", "GptLM"), ("bert", "encoder", "BertLM")} <= known
    assert {"llava", "clip"} <= {name for name, kind, _ in known if kind == "multimodal"}


def test_names_and_kinds_are_chosen_and_who_is_not_there_is_told(install: Install) -> None:
    install()
    found, missing = chosen(architectures(), ("gpt", "gtp"), ())
    assert found == (Architecture(name="gpt", kind="causal", model="GptLM"),)
    assert missing == ("gtp",)
    of_a_kind, _ = chosen(architectures(), ("all",), ("encoder",))
    assert [one.name for one in of_a_kind] == ["bert"]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("import torch\nTABLES = {}\n", "assigns nothing to a name that ends in _MAPPING_NAMES"),
        ("A_MAPPING_NAMES = made_elsewhere()\n", "cannot be read: name 'made_elsewhere'"),
        ("A_MAPPING_NAMES = open('/etc/passwd')\n", "cannot be read: name 'open'"),
        ("A_MAPPING_NAMES = (\n", "cannot be read: '(' was never closed"),
    ],
)
def test_tables_of_another_form_are_refused_with_their_file(
    install: Install, tables: str, message: str
) -> None:
    folder = install(tables)
    with pytest.raises(LibraryError) as refused:
        architectures()
    assert str(refused.value).startswith(str(folder / "models" / "auto" / "modeling_auto.py"))
    assert message in str(refused.value)


def test_a_library_that_says_no_version_or_is_not_there_is_refused(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(package="VERSION = 1\n")
    with pytest.raises(LibraryError, match=r"__init__.py assigns nothing .* in __version__"):
        library_version()
    monkeypatch.setattr("sys.path", [])
    importlib.invalidate_caches()
    with pytest.raises(LibraryError, match="transformers is not installed"):
        architectures()

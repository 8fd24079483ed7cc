"""An image's own layers on a real torch: what is built against it, from a folder, a commit and an
index, by the way that a project goes.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from projects import CPU_CELL, Project, project_on_torch, unique_image

from warpfront.images.engine.protocol import Engine, RunRequest

pytestmark = [pytest.mark.docker, pytest.mark.process, pytest.mark.network]

TORCH = "2.13.0+cpu"
EXTENSION = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools", "torch"]\n'
    'build-backend = "setuptools.build_meta"\n[project]\nname = "warp-add"\nversion = "1.0"\n',
    "setup.py": """\
import pathlib

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

pathlib.Path("warp_add_facts.py").write_text(f"built_with = {torch.__version__!r}\\n")
setup(
    ext_modules=[CppExtension("warp_add", ["add.cpp"], extra_compile_args=["-O0"])],
    py_modules=["warp_add_facts"],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
)
""",
    "add.cpp": """\
#include <Python.h>
#include <c10/core/DeviceType.h>

static PyObject* device(PyObject*, PyObject*) {
  return PyUnicode_FromString(c10::DeviceTypeName(c10::DeviceType::CPU, true).c_str());
}
static PyMethodDef methods[] = {
  {"device", device, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}
};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "warp_add", "", -1, methods};
PyMODINIT_FUNC PyInit_warp_add() { return PyModule_Create(&definition); }
""",
}
PURE = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\n'
    'build-backend = "setuptools.build_meta"\n'
    '[project]\nname = "{name}"\nversion = "0.1"\ndependencies = ["torch>=2", "einops"]\n'
    '[project.optional-dependencies]\nfast = ["safetensors"]\n'
    '[tool.setuptools]\npy-modules = ["{module}"]\n',
    "{module}.py": "answer = 42\n",
}


def write(folder: Path, files: dict[str, str], **names: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / filled(name, names)).write_text(filled(text, names), encoding="utf-8")
    # No wheel of these sources is in a wheelhouse from an earlier run.
    (folder / "RUN").write_text(uuid.uuid4().hex, encoding="utf-8")
    return folder


def filled(text: str, names: dict[str, str]) -> str:
    for key, value in names.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def committed(folder: Path) -> str:
    def git(*arguments: str) -> str:
        argv = ("git", "-c", "user.name=t", "-c", "user.email=t@example.test", *arguments)
        return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    return git("rev-parse", "HEAD").strip()


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, here: dict[str, str], cpu_image: str
) -> Iterator[Project]:
    """An image on the CPU image that other tests use, too."""
    assert cpu_image
    root = tmp_path_factory.mktemp("layers") / "project"
    build = {
        "tools": ["setuptools", "wheel"],
        "apt": ["g++", "python3-dev"],
        "environment": {"MAX_JOBS": "2"},
        "extensions": ["warp_add"],
    }
    image = {
        "parent": "torch",
        "template": "serve",
        "title": "Layers",
        "requirements": "requirements.txt",
        "builds": {"warp-add": build},
    }
    project_on_torch(root, {unique_image(): image})
    write(root / "libs" / "local-lib", PURE, name="local-lib", module="local_lib")
    write(root / "libs" / "ext", EXTENSION)
    commit = committed(write(root / "far-lib", PURE, name="far-lib", module="far_lib"))
    (root / "requirements.txt").write_text(
        f"-e ./libs/local-lib[fast]\n./libs/ext\nfar-lib @ git+file://{root}/far-lib@{commit}\n",
        encoding="utf-8",
    )
    yield Project(root=root, environment=here)
    shutil.rmtree(root.parent)


@pytest.fixture(scope="module")
def locked(project: Project) -> str:
    """Lock by steps: first without building anything, then with the wheels that were built."""
    said = project.invoke("lock").expect(0).said
    assert "to be built: far-lib 0.1, local-lib 0.1, warp-add" in said
    assert "next: warpfront build-wheels --only" in said
    refused = project.invoke("lock", "--locked").expect(4).said
    assert "and --locked forbids to change locks" in refused
    path = next((project.root / "images" / "locks").glob("*test*.toml"))
    before = path.read_text("utf-8")
    assert before.count('sha256 = "unbuilt"') == 3
    project.invoke("build-wheels", timeout=900).expect(0)
    text = path.read_text("utf-8")
    assert "unbuilt" not in text
    project.invoke("lock", "--locked").expect(0)
    return text


@pytest.fixture(scope="module")
def built(project: Project, locked: str) -> dict[str, Any]:
    assert locked
    answers = project.invoke("build", "--json", timeout=900).expect(0).json
    images = yaml.safe_load((project.root / "matrix.yaml").read_text("utf-8"))["images"]
    (app,) = [name for name, image in images.items() if "parent" in image]
    (cell,) = [one for one in answers if one.endswith(app)]
    assert answers[CPU_CELL]["reused"]
    return {"cell": cell, **answers[cell]}


def in_image(engine: Engine, image: str, script: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    request = RunRequest(image=image, command=("python3", "-c", script), time_limit_seconds=120)
    return engine.run(request, on_line=lines.append).exit_code, lines


def test_an_extension_is_built_against_the_images_own_torch_and_works_there(
    engine: Engine, built: dict[str, Any]
) -> None:
    script = (
        "import torch, warp_add, warp_add_facts, local_lib, far_lib, safetensors, einops\n"
        "print(torch.__version__, warp_add_facts.built_with)\n"
        "print(warp_add.device(), local_lib.answer, far_lib.answer)\n"
    )
    code, lines = in_image(engine, built["image_id"], script)
    assert (code, lines) == (0, [f"{TORCH} {TORCH}", "cpu 42 42"])


def test_the_builders_tools_stay_out_of_the_image(engine: Engine, built: dict[str, Any]) -> None:
    script = "import importlib.util as u, shutil; print(u.find_spec('wheel'), shutil.which('g++'))"
    code, lines = in_image(engine, built["image_id"], script)
    assert (code, lines[-1]) == (0, "None None")


def test_the_lock_names_each_source_and_what_it_was_built_with(
    project: Project, built: dict[str, Any]
) -> None:
    text = (project.root / "images" / "locks" / f"pylock.{built['cell']}.toml").read_text("utf-8")
    assert 'source = "./libs/ext"' in text
    assert 'source = "./libs/local-lib"' in text
    assert "git+file://" in text
    assert 'extensions = [\n    "warp_add",\n]' in text
    assert '"setuptools==' in text


def test_a_fresh_lock_is_kept_and_a_changed_folder_makes_it_stale(
    project: Project, built: dict[str, Any]
) -> None:
    project.invoke("lock", "--locked").expect(0)
    source = project.root / "libs" / "local-lib" / "local_lib.py"
    before = source.read_text("utf-8")
    source.write_text("answer = 43\n", encoding="utf-8")
    try:
        stale = project.invoke("lock", "--locked").expect(4)
        assert "./libs/local-lib has changed since" in stale.said
    finally:
        source.write_text(before, encoding="utf-8")
    assert built["cell"]

"""What each vendor says of its targets, compilers and devices."""

from __future__ import annotations

from typing import get_args

import pytest

from warpfront.matrix.cell import Compiler, DeviceAccess, HostDevices, Toolkit
from warpfront.matrix.language import VendorName
from warpfront.matrix.vendors import VENDORS

NVIDIA, AMD, CPU, GAUDI, INTEL = (
    VENDORS[name] for name in ("nvidia", "amd", "cpu", "gaudi", "intel")
)


def test_matrix_yaml_takes_the_vendors_that_there_are() -> None:
    assert set(get_args(get_args(VendorName)[0])) == VENDORS.keys()


def test_every_vendor_is_filed_under_its_own_name() -> None:
    for name, vendor in VENDORS.items():
        assert vendor.name == name
        assert vendor.accepts_target(vendor.target_form)
        assert all(vendor.accepts_target(target) for target in vendor.known_targets)


def test_a_cpu_is_its_own_machine_and_a_device_is_of_any() -> None:
    assert [CPU.machine_of(target) for target in CPU.known_targets] == ["x86_64", "aarch64"]
    assert [one.machine_of(one.target_form) for one in (NVIDIA, AMD, GAUDI)] == [None] * 3


def test_a_cubin_of_the_same_major_and_a_lower_minor_serves() -> None:
    archs = NVIDIA.accepted_archs("sm_89")
    assert archs[0] == "sm_89"
    assert {"sm_86", "sm_80"} < set(archs)


@pytest.mark.parametrize("arch", ["sm_90", "sm_75", "sm_89", "compute_90", "sm_90a"])
def test_other_cubins_and_newer_ptx_do_not_serve(arch: str) -> None:
    assert arch not in NVIDIA.accepted_archs("sm_86")


def test_ptx_serves_forward_only() -> None:
    assert "compute_80" in NVIDIA.accepted_archs("sm_90")
    assert "compute_90" not in NVIDIA.accepted_archs("sm_80")


def test_a_major_is_not_a_decimal_digit() -> None:
    archs = NVIDIA.accepted_archs("sm_103")
    assert "sm_100" in archs
    assert "sm_90" not in archs
    assert "sm_120" not in archs


def test_code_for_integrated_gpus_is_their_own() -> None:
    assert "sm_87" not in NVIDIA.accepted_archs("sm_89")
    assert "sm_80" not in NVIDIA.accepted_archs("sm_87")
    assert "compute_80" in NVIDIA.accepted_archs("sm_87")


def test_architecture_specific_code_serves_exactly_its_own_target() -> None:
    assert "sm_90a" in NVIDIA.accepted_archs("sm_90")
    assert "sm_100a" not in NVIDIA.accepted_archs("sm_103")


def test_an_arch_list_is_read_as_torch_reports_it() -> None:
    assert NVIDIA.shipped_archs(("9.0", "12.0+PTX")) == {"sm_90", "sm_120", "compute_120"}


def test_amd_code_serves_exactly_or_by_generic_family() -> None:
    assert AMD.accepted_archs("gfx942") == ("gfx942", "gfx9-4-generic")
    assert AMD.accepted_archs("gfx1100") == ("gfx1100", "gfx11-generic")
    assert AMD.accepted_archs("gfx90a") == ("gfx90a",)
    assert AMD.accepted_archs("gfx906") == ("gfx906", "gfx9-generic")


@pytest.mark.parametrize(
    "target", ["sm_", "sm_9", "sm_90a", "sm_090", "SM_90", "sm_90\n", "sm90", "gfx942", ""]
)
def test_what_is_no_nvidia_target_is_not_accepted(target: str) -> None:
    assert not NVIDIA.accepts_target(target)


@pytest.mark.parametrize(
    "target", ["gfx", "gfx94", "gfx942 ", "gfx9-4", "gfx94X", "sm_90", "GFX942"]
)
def test_what_is_no_amd_target_is_not_accepted(target: str) -> None:
    assert not AMD.accepts_target(target)


def test_labels_follow_the_index() -> None:
    assert NVIDIA.label("cu130") == "cu130"
    assert NVIDIA.label("pypi") == ""
    assert AMD.label("rocm6.4") == "rocm6.4"
    assert CPU.label("cpu") == "cpu"


def test_the_cuda_compiler_is_of_the_toolkit_s_own_minor() -> None:
    compiler = NVIDIA.compiler(
        Toolkit(name="cuda", version="13.0"), ("sm_120", "sm_80"), "3.11", "bookworm"
    )
    assert isinstance(compiler, Compiler)
    assert compiler.requirements == (
        "cuda-toolkit[nvcc]==13.0.*",
        "nvidia-cuda-cccl==13.*",
    )
    assert compiler.apt == ("g++", "python3-dev")
    assert compiler.libraries.endswith("/nvidia/cu13/lib")
    assert dict(compiler.environment) == {
        "CUDA_HOME": "/opt/venv/lib/python3.11/site-packages/nvidia/cu13",
        "TORCH_CUDA_ARCH_LIST": "8.0;12.0+PTX",
    }


def test_there_is_no_nvcc_wheel_before_cuda_13() -> None:
    toolkit = Toolkit(name="cuda", version="12.8")
    assert "no nvcc" in str(NVIDIA.compiler(toolkit, ("sm_90",), "3.11", "bookworm"))


@pytest.mark.parametrize(("version", "suite"), [("5.7", "trixie"), ("6.4", "sid")])
def test_hipcc_comes_from_the_suite_that_has_that_rocm(version: str, suite: str) -> None:
    toolkit = Toolkit(name="rocm", version=version)
    compiler = AMD.compiler(toolkit, ("gfx90a", "gfx942"), "3.13", suite)
    assert isinstance(compiler, Compiler)
    assert "hipcc" in compiler.apt
    assert compiler.environment["PYTORCH_ROCM_ARCH"] == "gfx90a;gfx942"
    # hipcc 5.7.1 finds its device libraries only where nobody gives it a ROCM_PATH.
    assert "ROCM_PATH" not in compiler.environment


def test_a_base_with_a_suite_that_is_not_whole_names_its_own_packages() -> None:
    toolkit = Toolkit(name="rocm", version="7.2")
    compiler = AMD.compiler(toolkit, ("gfx942",), "3.14", "experimental")
    assert isinstance(compiler, Compiler)
    assert compiler.apt == ()
    assert compiler.environment["PYTORCH_ROCM_ARCH"] == "gfx942"


def test_an_emulator_s_configuration_names_a_target_by_the_kernel_s_number() -> None:
    numbers = {"gfx90a": 90010, "gfx942": 90402, "gfx1100": 110000, "gfx1201": 120001}
    assert {target: AMD.emulated_version(target) for target in numbers} == numbers
    assert NVIDIA.emulated_version("sm_90") is None


@pytest.mark.parametrize(
    ("version", "suite", "words"),
    [
        ("6.3", "trixie", "Debian trixie's hipcc is of ROCm 5.7, and no wheel holds the compiler"),
        ("6.4", "trixie", "of rocm6.4"),
        ("6.4", "", "which ROCm the hipcc of this base is of is not known"),
        ("6.4", "noble", "which ROCm the hipcc of noble is of is not known"),
        ("7.14", "sid", "of ROCm 6.4, and the index of rocm7.14 has no rocm-sdk-devel"),
    ],
)
def test_another_rocm_s_hipcc_is_no_compiler_of_this_one(
    version: str, suite: str, words: str
) -> None:
    toolkit = Toolkit(name="rocm", version=version)
    none = AMD.compiler(toolkit, ("gfx942",), "3.13", suite)
    assert isinstance(none, str)
    assert words in none


def test_rocm_has_wheels_for_each_target_from_7_14_on() -> None:
    for version, has in (("6.4", False), ("7.2", False), ("7.14", True), ("10.0", True)):
        assert AMD.has_device_wheels(Toolkit(name="rocm", version=version)) is has
    assert not NVIDIA.has_device_wheels(Toolkit(name="cuda", version="13.0"))


def test_a_cpu_has_gpp_for_extensions_and_gaudi_s_base_has_its_own_tools() -> None:
    compiler = CPU.compiler(None, ("x86_64",), "3.11", "bookworm")
    assert isinstance(compiler, Compiler)
    assert "g++" in compiler.apt
    toolkit = Toolkit(name="synapseai", version="1.24.1")
    assert isinstance(GAUDI.compiler(toolkit, ("gaudi3",), "3.12", ""), str)
    assert GAUDI.compiler_call("gaudi3") is None


def test_one_source_is_compiled_for_exactly_the_target() -> None:
    hip, cuda, plain = (
        vendor.compiler_call(target)
        for vendor, target in ((AMD, "gfx942"), (NVIDIA, "sm_100"), (CPU, "x86_64"))
    )
    assert hip is not None
    assert hip.argv[:2] == ("hipcc", "--offload-arch=gfx942")
    assert hip.environment == {"PYTORCH_ROCM_ARCH": "gfx942"}
    assert cuda is not None
    assert cuda.argv[:2] == ("nvcc", "-arch=sm_100")
    assert cuda.environment == {"TORCH_CUDA_ARCH_LIST": "10.0"}
    assert plain is not None
    assert (plain.argv[0], plain.kernel) == ("g++", ())


def test_rocm_s_own_distributions_are_protected() -> None:
    assert {"rocm", "rocm-sdk-*", "triton-rocm", "pytorch-triton-rocm"} < set(AMD.protected)


def test_a_host_without_the_device_gives_no_access() -> None:
    bare = HostDevices()
    assert CPU.device_access(bare) == DeviceAccess()
    assert [v.device_access(bare) for v in (NVIDIA, AMD, GAUDI)] == [None, None, None]


def test_another_vendor_s_devices_give_no_access() -> None:
    amd_host = HostDevices(cdi=("amd.com/gpu=0",), nodes={"/dev/kfd": 1, "/dev/dri/renderD128": 2})
    assert NVIDIA.device_access(amd_host) is None
    assert GAUDI.device_access(amd_host) is None


def test_nvidia_is_asked_for_by_cdi_first_and_by_gpus_else() -> None:
    both = HostDevices(cdi=("nvidia.com/gpu=0", "nvidia.com/gpu=all"), gpus=True)
    assert NVIDIA.device_access(both) == DeviceAccess(cdi=("nvidia.com/gpu=all",))
    each = HostDevices(cdi=("nvidia.com/gpu=1", "nvidia.com/gpu=0"))
    assert NVIDIA.device_access(each) == DeviceAccess(cdi=("nvidia.com/gpu=0", "nvidia.com/gpu=1"))
    assert NVIDIA.device_access(HostDevices(gpus=True)) == DeviceAccess(gpus=True)


def test_amd_nodes_come_with_the_groups_that_own_them() -> None:
    host = HostDevices(
        nodes={
            "/dev/kfd": 992,
            "/dev/dri/renderD129": 110,
            "/dev/dri/renderD128": 992,
            "/dev/dri/card0": 44,
        }
    )
    assert AMD.device_access(host) == DeviceAccess(
        nodes=("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129"), groups=(110, 992)
    )
    assert AMD.device_access(HostDevices(nodes={"/dev/kfd": 992})) is None
    assert AMD.device_access(HostDevices(nodes={"/dev/dri/renderD128": 992})) is None


def test_gaudi_uses_its_runtime_where_there_is_no_cdi() -> None:
    access = GAUDI.device_access(HostDevices(runtimes=("runc", "habana")))
    assert access is not None
    assert access.runtime == "habana"
    assert access.environment["HABANA_VISIBLE_DEVICES"] == "all"
    by_cdi = GAUDI.device_access(HostDevices(cdi=("habana.ai/gaudi=all",), runtimes=("habana",)))
    assert by_cdi == DeviceAccess(cdi=("habana.ai/gaudi=all",))


def test_intels_render_nodes_are_given_where_they_can_be_nobody_elses() -> None:
    nodes = {"/dev/dri/renderD128": 992, "/dev/dri/card0": 44}
    assert INTEL.device_access(HostDevices(nodes=nodes)) == DeviceAccess(
        nodes=("/dev/dri/renderD128",), groups=(992,)
    )
    assert INTEL.device_access(HostDevices()) is None
    for other in ("/dev/kfd", "/dev/nvidiactl"):
        assert INTEL.device_access(HostDevices(nodes={**nodes, other: 0})) is None
    known = HostDevices(cdi=("intel.com/gpu=0", "intel.com/gpu=all", "amd.com/gpu=0"))
    assert INTEL.device_access(known) == DeviceAccess(cdi=("intel.com/gpu=all",))


@pytest.mark.parametrize("target", ["sm_90", "gfx942", "BMG", "bmg_g21", "x86_64", ""])
def test_other_vendors_targets_are_none_of_intels(target: str) -> None:
    assert not INTEL.accepts_target(target)
    assert INTEL.accepted_archs("bmg") == ("bmg",)

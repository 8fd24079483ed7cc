"""`torch.hpu`, what programs call of it. Names and answers are those of public logs of a Gaudi."""

import os
import time

import torch

_MEMORY = 102106132480


class Properties:
    """Prints as the real one does; it has no `total_memory`."""

    def __str__(self):
        return (
            f"(sramBaseAddress=1153202979533225984, dramBaseAddress=1153203082662772736,"
            f" sramSize=50331648, dramSize={_MEMORY}, tpcEnabledMask=16777215, dramEnabled=1,"
            " fd=20, device_id=0, device_type=4)"
        )

    __repr__ = __str__


class Event:
    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self.at = 0.0

    def record(self, stream=None):
        self.at = time.perf_counter()

    def elapsed_time(self, end):
        return (end.at - self.at) * 1000

    def synchronize(self):
        return None

    def query(self):
        return True


class Stream:
    def synchronize(self):
        return None


class device:  # noqa: N801 - the real name
    def __init__(self, index):
        self.index = torch.device(index).index if isinstance(index, (str, torch.device)) else index
        self.before = 0

    def __enter__(self):
        self.before = current_device()
        set_device(self.index or 0)

    def __exit__(self, *_):
        set_device(self.before)


def is_available():
    return device_count() > 0


def device_count():
    return int(os.environ.get("STAND_IN_HPU_DEVICES", "1"))


def get_device_name(device=None):
    return "GAUDI2 (stand-in)"


def get_device_capability(device=None):
    return None


def get_device_properties(device=None):
    return Properties()


def mem_get_info(device=None):
    return _MEMORY, _MEMORY


def current_device():
    return torch._C._accelerator_getDeviceIndex()


def set_device(device):
    torch._C._accelerator_setDeviceIndex(
        torch.device("hpu", device).index
        if isinstance(device, int)
        else torch.device(device).index or 0
    )


def synchronize(device=None):
    return None


def current_stream(device=None):
    return Stream()


def default_stream(device=None):
    return Stream()


def memory_allocated(device=None):
    return 0


def max_memory_allocated(device=None):
    return 0


def memory_reserved(device=None):
    return 0


def memory_stats(device=None):
    return {}


def reset_peak_memory_stats(device=None):
    return None


def is_initialized():
    return True


def _is_in_bad_fork():
    return False


def _lazy_init():
    return None


def manual_seed(seed):
    return None


manual_seed_all = manual_seed


def get_rng_state(device=None):
    return torch.get_rng_state()


def set_rng_state(state, device=None):
    torch.set_rng_state(state)


def is_bf16_supported():
    return True


def get_amp_supported_dtype():
    return [torch.bfloat16, torch.float16]


def is_autocast_hpu_enabled():
    return torch.is_autocast_enabled("hpu")

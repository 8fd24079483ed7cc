"""A stand-in for the vendor's package: its names and its way of being loaded, over the CPU.

torch loads it by its entry point of `torch.backends`, unless TORCH_DEVICE_BACKEND_AUTOLOAD is 0;
`import habana_frameworks.torch` does the same.
"""

is_loaded = False


def __autoload() -> None:
    if not is_loaded:
        import habana_frameworks.torch  # noqa: F401

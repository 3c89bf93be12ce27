"""What this build is: version, commit and the instruction set that the kernels use."""

from __future__ import annotations


def kernels_label() -> str:
    """The tier that the kernels use, or why none can be."""
    from twofold.kernels.cpu import NativeMissing, native

    try:
        tier: str = native().active_tier()
    except NativeMissing as error:
        return f"missing: {error}"
    except ValueError as error:
        return str(error)
    return tier


def commit() -> str:
    """The commit that the native module was built from, or `unknown`."""
    from twofold.kernels.cpu import NativeMissing, native

    try:
        built: str = native().build_commit()
    except NativeMissing:
        return "unknown"
    return built


def package_version() -> str:
    """`0.1.0`, or `unknown` outside of an installation."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("twofold")
    except PackageNotFoundError:
        return "unknown"


def version_line() -> str:
    """`twofold 0.1.0 (commit abc1234, kernels: avx2)`."""
    return f"twofold {package_version()} (commit {commit()}, kernels: {kernels_label()})"

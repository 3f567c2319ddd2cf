"""Builds the native library: all of native/*.cpp, once for each level of x86-64."""

import os
import platform
import shlex
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

LEVELS = ["v2", "v3", "v4"] if platform.machine() in ("x86_64", "AMD64") else ["any"]
FLAGS = (
    "-std=c++17 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math"
    " -fvisibility=hidden -fPIC -shared -pthread"
)
STATIC = ["-static-libstdc++", "-static-libgcc", "-Wl,--version-script=native/visible.map"]
SOURCES = sorted(str(path) for path in Path("native").iterdir() if path.suffix in (".cpp", ".h"))


class BuildNative(build_ext):
    """Compiles each copy of the library by one call of the compiler."""

    def finalize_options(self):  # noqa: D102 override
        super().finalize_options()
        self.parallel = self.parallel or True

    def get_ext_filename(self, ext_name):  # noqa: D102 override
        return f"{ext_name.replace('.', '/')}.so"

    def build_extension(self, ext):  # noqa: D102 override
        target = Path(self.get_ext_fullpath(ext.name))
        for folder in target.parent, Path("widenet/native"):
            folder.mkdir(parents=True, exist_ok=True)
        digest = sha256(b"\0".join(Path(source).read_bytes() for source in SOURCES)).hexdigest()
        compiler = shlex.split(os.environ.get("CXX") or "c++")
        made = target.with_suffix(f".{os.getpid()}")
        options = [
            *FLAGS.split(),
            *(STATIC if sys.platform != "darwin" else []),
            *ext.extra_compile_args,
            f'-DWIDENET_SOURCES="{digest}"',
        ]
        options += shlex.split(os.environ.get("CXXFLAGS", ""))
        try:
            subprocess.run([*compiler, *options, *ext.sources, "-o", str(made)], check=True)  # noqa: S603 our command
        except (FileNotFoundError, subprocess.CalledProcessError):
            raise SystemExit(
                f"{compiler[0]} cannot compile widenet's native library, which needs g++ 11 or clang 12."
                " WIDENET_NO_NATIVE=1 installs widenet without it."
            ) from None
        made.replace(target)


class PlatformWheel(bdist_wheel):
    """A wheel for every Python 3 of a platform: the library knows nothing of Python."""

    def get_tag(self):  # noqa: D102 override
        return "py3", "none", super().get_tag()[2]


def extensions():
    """A copy of the library for each level, if it is wanted."""
    if os.environ.get("WIDENET_NO_NATIVE"):
        for earlier in Path("widenet/native").glob("*.so"):
            earlier.unlink()
        return []
    return [
        Extension(
            f"widenet.native.{level}",
            [source for source in SOURCES if source.endswith(".cpp")],
            depends=SOURCES,
            extra_compile_args=[] if level == "any" else [f"-march=x86-64-{level}"],
        )
        for level in LEVELS
    ]


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildNative, "bdist_wheel": PlatformWheel})

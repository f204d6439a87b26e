"""Import stand-ins for two packages that SGLang imports at start-up but never calls on a CPU.

SGLang imports ``sgl_kernel`` (CUDA kernels) and ``torchvision`` (image processors) while it starts,
whatever the device and the model. On a host without a GPU the first has nothing to run on, and a text
model needs nothing of the second, so the CPU engine is served without either. This module makes those
imports succeed, and no more: whatever is taken from a stand-in raises ``StandInUsedError`` as soon as
it is called, so that a code path which really needs the package stops with its name instead of going on
with a made-up answer.

A really installed package always wins, because the finder is asked last and never answers for the
submodules of a real package. ``importlib.metadata`` does not know the stand-ins, so that a library
which asks for the installed version learns that the package is absent.

The wheel's ``.pth`` file calls ``install()`` at each start of the interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn

__version__ = "1.0.0"

STAND_INS = ("sgl_kernel", "torchvision")
"""The top-level packages that are stood in for when they are not installed."""

STAND_IN_VERSION = "0.0.0+cpu.stand.in"
"""``__version__`` of each stand-in: lower than any release, so that no version check takes it for one."""


class StandInUsedError(RuntimeError):
    """Something was called that belongs to a package which is not installed."""

    def __init__(self, name: str) -> None:
        package = name.partition(".")[0]
        super().__init__(
            f"{name} was called, but {package} is not installed: "
            "smokestack-cpu-stand-in only lets it be imported"
        )


class StandIn:
    """A named attribute of a package that is not installed: it can be passed around, never called."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = name.rpartition(".")[0]

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise StandInUsedError(self.__name__)

    def __getattr__(self, attribute: str) -> StandIn:
        return _attribute_of(self, attribute)

    def __repr__(self) -> str:
        return f"<stand-in for {self.__name__}>"


class StandInModule(ModuleType):
    """A module, or a package without files, whose every attribute is a ``StandIn``."""

    def __getattr__(self, attribute: str) -> StandIn:
        return _attribute_of(self, attribute)


def _attribute_of(owner: StandIn | StandInModule, attribute: str) -> StandIn:
    """Return the stand-in for an attribute and keep it, so that two reads give the same object.

    Double-underscore names are how Python itself asks what an object can do: they stay absent.
    """
    if attribute.startswith("__") and attribute.endswith("__"):
        raise AttributeError(attribute)
    value = StandIn(f"{owner.__name__}.{attribute}")
    setattr(owner, attribute, value)
    return value


class StandInFinder(MetaPathFinder, Loader):
    """Finds and loads stand-ins for the packages of ``STAND_INS`` that no earlier finder knew."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a stand-in, or None for every other module (submodules of a real package too)."""
        parent, _, _ = fullname.rpartition(".")
        stands_in = isinstance(sys.modules.get(parent), StandInModule) if parent else fullname in STAND_INS
        return ModuleSpec(fullname, self, is_package=True) if stands_in else None

    def create_module(self, spec: ModuleSpec) -> StandInModule:
        module = StandInModule(spec.name, doc=f"Stand-in for {spec.name}, which is not installed.")
        # Set as an attribute of the module, not left to __getattr__, which refuses double-underscore names.
        module.__dict__["__version__"] = STAND_IN_VERSION
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def install() -> None:
    """Put the finder at the end of ``sys.meta_path``, once."""
    if not any(isinstance(finder, StandInFinder) for finder in sys.meta_path):
        sys.meta_path.append(StandInFinder())

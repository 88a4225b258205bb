"""In the place of sgl_kernel and torchvision, which have no build for SGLang on a CPU: any name in it, or in any module
of it, is a class that does nothing."""

import importlib.abc
import importlib.machinery
import sys
import types


class AnyName(type):
    def __getattr__(cls, name):
        return nothing(name)


class Nothing(metaclass=AnyName):
    def __init__(self, *words, **options):
        pass


def nothing(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return AnyName(name, (Nothing,), {})


class AnyModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith(__name__ + ".") else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = nothing
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(AnyModule())
__getattr__ = nothing
__version__ = "0"

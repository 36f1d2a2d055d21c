"""Carries the engine patches into images where nothing can be installed.

    PYTHONPATH=/path/to/k3-gateway/patches/sitecustomize:/path/to/k3-gateway

Python imports the first `sitecustomize` on its path in every process. This one only waits for vLLM's plugin
loader, which every vLLM process runs before it builds a model, and applies the patches right after it; a
process that never loads vLLM pays nothing. With the package installed this is not needed (the
`vllm.general_plugins` entry point does the same), and harmless.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PLUGINS = "vllm.plugins"


class _PluginsHook:
    """A finder that lets vLLM's plugin module load as usual and extends its loader function."""

    def find_spec(self, name: Any, path: Any = None, target: Any = None) -> Any:
        if name != _PLUGINS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _PluginsLoader(spec.loader)
        return spec


class _PluginsLoader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: Any) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        load_general_plugins = module.load_general_plugins
        printed = set()

        def load_and_patch() -> None:
            load_general_plugins()
            from patches import apply_all

            for line in apply_all().lines():
                if line not in printed:
                    printed.add(line)
                    print(line, file=sys.stderr, flush=True)

        module.load_general_plugins = load_and_patch


def _run_shadowed_sitecustomize() -> None:
    """Run the `sitecustomize` that this one hides (a distribution's or a container's own), if any."""
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _PluginsHook())
_run_shadowed_sitecustomize()

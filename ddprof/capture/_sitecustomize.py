"""Copied by `ddprof run` into its shim folder as `sitecustomize.py`: Python imports it at start-up because the folder
is on PYTHONPATH.

It must never raise, stays silent, costs next to nothing in processes that are not ranks, and gives way to a
sitecustomize of the user.
"""

import os
import sys


def _start() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    if getattr(sys, "_ddprof_capture", None) is not None:
        return  # a nested `ddprof run`: the outer one captures
    sys._ddprof_capture = here  # type: ignore[attr-defined]
    config = os.path.join(here, "config.json")

    def on_torch(module: object) -> None:
        try:
            from ddprof.capture.bootstrap import start

            start(config)
        except Exception as error:  # `import torch` of the user's script must not fail because of us
            sys.stderr.write(f"ddprof: no capture in this process: {type(error).__name__}: {error}\n")

    def on_tensorflow(module: object) -> None:
        try:
            from ddprof.capture.tensorflow.job import start

            start(config, module)  # type: ignore[arg-type]
        except Exception as error:
            sys.stderr.write(f"ddprof: no capture in this process: {type(error).__name__}: {error}\n")

    import json

    with open(config, encoding="utf-8") as stream:
        package_dir = json.load(stream)["package_dir"]
    hook = _load_hook(package_dir)
    hook.when_imported("torch", on_torch)
    hook.when_imported("tensorflow", on_tensorflow)


def _load_hook(package_dir: str):  # type: ignore[no-untyped-def]
    """The import hook, from our own package folder: the environment of the user need not have ddprof, nor see our
    dependencies."""
    import importlib.util
    from importlib.machinery import PathFinder

    wanted = os.path.join(package_dir, "ddprof")
    spec = PathFinder.find_spec("ddprof")
    found = os.path.dirname(spec.origin) if spec is not None and spec.origin else None
    if found is None or os.path.realpath(found) != os.path.realpath(wanted):
        if not os.path.isdir(wanted) and found is None:
            raise ImportError(f"{wanted} is not there on this host")
        if os.path.isdir(wanted):
            sys.meta_path.insert(0, _OwnPackage(wanted))
    hook_file = os.path.join(wanted if os.path.isdir(wanted) else str(found), "capture", "import_hook.py")
    hook_spec = importlib.util.spec_from_file_location("_ddprof_import_hook", hook_file)
    module = importlib.util.module_from_spec(hook_spec)  # type: ignore[arg-type]
    hook_spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module.ImportHook()


class _OwnPackage:
    """Finds `ddprof` in one folder and nothing else, so that no site-packages folder leaks into the user's
    environment."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "ddprof":
            return None
        import importlib.util

        init = os.path.join(self.folder, "__init__.py")
        return importlib.util.spec_from_file_location(name, init, submodule_search_locations=[self.folder])


def _run_shadowed() -> None:
    """Import the sitecustomize that ours hides, if there is one: its errors are its own and surface as they would
    without us."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _start()
except Exception as _error:  # the job must start whatever is wrong with us
    sys.stderr.write(f"ddprof: no capture in this process: {type(_error).__name__}: {_error}\n")
_run_shadowed()

"""Python imports this at start-up, because `ddprof run` has put its folder on PYTHONPATH.

It never raises, prints nothing, costs next to nothing in processes that are not ranks, and yields to a user's
sitecustomize.

It runs from ddprof's installation, since anyone with access to a run folder could replace a copy there. ddprof's
modules are imported as `_ddprof`, so that they neither hide a `ddprof` of the user's nor are hidden by one: the
environment of the user need not have ddprof.
"""

import atexit
import builtins
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import module_from_spec
from types import FrameType, ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))
_OLDEST_PYTHON = (3, 10)  # as in pyproject.toml; the job may have another Python than we
_SETTINGS = "/capture/shim/settings/"  # capture/files/config.py makes what stands behind it


def _start() -> None:
    if getattr(sys, "_ddprof_capture", None) is not None:
        return  # a nested `ddprof run`, or the .pth file was here before
    settings = _settings()
    if settings is None:
        return
    sys._ddprof_capture = settings  # type: ignore[attr-defined]
    if sys.version_info < _OLDEST_PYTHON:
        raise RuntimeError(f"Python {sys.version.split()[0]} is older than {'.'.join(map(str, _OLDEST_PYTHON))}")
    package = ModuleType("_ddprof")
    package.__path__ = [_PACKAGE]
    sys.modules["_ddprof"] = package
    _note_end(settings)
    hook = _ours("_ddprof.capture.import_hook").ImportHook()
    stated = settings.partition("/run_dir=")[0]
    is_plain = "/apply=" not in stated and "/end_after=" not in stated
    torch_start = "_ddprof.capture.bootstrap" if is_plain else "_ddprof.capture.trial"
    for framework, module in (("torch", torch_start), ("tensorflow", "_ddprof.capture.tensorflow.job")):
        hook.when_imported(framework, _starter(module, settings))


def _note_end(settings: str) -> None:
    """Have the reason written why the process fails: an exception that Python has printed, `sys.exit` or `exit`, or no
    script.
    """
    end_script, quitter = sys.exit, type(getattr(builtins, "exit", None))

    def noted(status: object, function: str, caller: FrameType) -> None:
        if status is not None and status != 0:
            _quietly(lambda: _ours("_ddprof.capture.last_words").note_exit(status, caller, function))

    def exit(status=None, /):  # type: ignore[no-untyped-def]
        noted(status, "sys.exit", sys._getframe(1))
        end_script(status)

    def quit(self, code=None):  # type: ignore[no-untyped-def]
        noted(code, self.name, sys._getframe(1))
        end_quietly(self, code)

    def at_end() -> None:
        script = sys.argv[0] if sys.argv else ""
        if hasattr(sys, "last_value") or hasattr(sys, "_ddprof_exit") or not os.path.exists(script):
            session = getattr(sys.modules.get("_ddprof.capture.bootstrap"), "active", None)
            is_told = getattr(session, "ending", None) is not None
            _quietly(lambda: _ours("_ddprof.capture.last_words").write(settings, is_told))

    sys.exit = exit
    if quitter.__name__ == "Quitter":
        end_quietly = quitter.__call__
        quitter.__call__ = quit  # type: ignore[method-assign]
    atexit.register(at_end)


def _quietly(work) -> None:  # type: ignore[no-untyped-def]
    try:
        work()
    except Exception:  # the job's own failure is what matters
        return


def _settings() -> "str | None":
    """The settings of `ddprof run`, from a variable or PYTHONPATH, as some launchers pass on only PYTHON* variables."""
    for place in (os.environ.get("DDPROF_SHIM", ""), *os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        _, marker, settings = place.partition(_SETTINGS)
        if marker:
            return settings
    return None


def _starter(module: str, settings: str):  # type: ignore[no-untyped-def]
    def start(framework: ModuleType) -> None:
        try:
            _ours(module).start(settings, framework)
        except Exception as error:  # `import torch` of the user's script must not fail because of us
            _say(error)

    return start


def _ours(name: str) -> ModuleType:
    """A module of ddprof under its private name, with all that it imports of ddprof."""
    sys.meta_path.insert(0, _PrivateFinder)
    try:
        return import_module(name)
    finally:
        sys.meta_path.remove(_PrivateFinder)


class _PrivateFinder:
    """Finds `_ddprof.*` in ddprof's own folder: no site-packages folder leaks into the user's environment."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
        spec = PathFinder.find_spec(name, path) if name.startswith("_ddprof.") else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _PrivateLoader(spec.loader.name, spec.loader.path)
        return spec


class _PrivateLoader(SourceFileLoader):
    """Runs a module whose `from ddprof. ... import` statements find `_ddprof`."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


def _import(name, globals=None, locals=None, fromlist=(), level=0):  # type: ignore[no-untyped-def]
    private = f"_{name}" if level == 0 and name.partition(".")[0] == "ddprof" else name
    return builtins.__import__(private, globals, locals, fromlist, level)


def _run_shadowed() -> None:
    """Import the sitecustomize that ours hides, if there is one: its errors surface as they would without us. Without
    one, `sitecustomize` is as unknown as it would be without us.
    """
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("No module named 'sitecustomize'", name="sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _say(error: Exception) -> None:
    """Print an error as `guard.say` does, which may not be importable."""
    line = f"ddprof: no capture in this process: {type(error).__name__}: {error}\n"
    try:
        sys.stderr.flush()
        os.write(sys.stderr.fileno(), line.encode("utf-8", "backslashreplace"))
    except (OSError, ValueError, AttributeError):  # stderr is closed, or there is none
        return


try:
    _start()
except Exception as _error:  # the job must start whatever is wrong with us
    _say(_error)
if __name__ == "sitecustomize":  # and not run by the .pth file, which hides nobody's
    _run_shadowed()

"""One call in a script's text with other keyword arguments; every other character stays."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddprof.errors import UsageError
from ddprof.settings.catalogue import DDP, FSDP1, FSDP2, LOADER, OPTIMIZER, ZERO_GRAD, Value
from ddprof.settings.wanted import WantedFix

_MARK = "\ufeff"  # of UTF-8 at the start of a file, by editors of Windows
_EXCLUDES = {"fused": "foreach", "foreach": "fused"}


class NotEdited(Exception):
    """A call that cannot be edited safely; the message has the reason."""


def edited(source: str, fix: WantedFix) -> str:
    """The text with the fix in the call at its line. Raises NotEdited; UsageError where libcst is not installed."""
    try:
        import libcst
        from libcst import metadata
    except ImportError:
        raise UsageError("a patch needs libcst: pip install 'ddprof[patch]'") from None
    try:
        wrapper = metadata.MetadataWrapper(libcst.parse_module(source.removeprefix(_MARK)))
    except (libcst.ParserSyntaxError, RecursionError):
        raise NotEdited("the file cannot be parsed") from None
    node, target = _call_at(libcst, metadata, wrapper, fix)
    changed = _with_keywords(libcst, node, target, fix.values)
    text = str(wrapper.module.deep_replace(node, changed).code)
    _check(source, text)
    return _MARK * source.startswith(_MARK) + text


def _call_at(libcst: Any, metadata: Any, wrapper: Any, fix: WantedFix) -> tuple[Any, str]:
    """The call on the wanted line, and the kind of object that it makes."""
    line = int(fix.at.rpartition(":")[2])
    positions = wrapper.resolve(metadata.PositionProvider)
    names = wrapper.resolve(metadata.QualifiedNameProvider)
    calls = []
    for node, span in positions.items():
        if isinstance(node, libcst.Call) and span.start.line <= line <= span.end.line:
            qualified = names.get(node.func, ())
            qualified = qualified() if callable(qualified) else qualified  # computed when it is asked for
            called = {name.name for name in qualified} or {_attribute(libcst, node.func)}
            targets = [target for target in fix.targets if all(is_call_of(name, target) for name in called)]
            calls += [(node, target) for target in targets[:1]]
    if not calls:
        raise NotEdited(f"the line has no call of {' or '.join(fix.targets)} by a name imported from torch")
    if len(calls) > 1:
        raise NotEdited("the line has several such calls")
    return calls[0]


def _attribute(libcst: Any, function: Any) -> str:
    """The name of an attribute: `zero_grad` of `self.optimizer.zero_grad`, whatever the object is."""
    return str(function.attr.value) if isinstance(function, libcst.Attribute) else ""


def _with_keywords(libcst: Any, node: Any, target: str, values: Mapping[str, Value]) -> Any:
    given = {arg.keyword.value: arg for arg in node.args if arg.keyword is not None}
    positional = [arg for arg in node.args if arg.keyword is None and not arg.star]
    for name in values:
        if (target, name) in BY_OTHER_NAMES:
            raise NotEdited(f"{name} has another name here (sharding_strategy, BackwardPrefetch)")
        other = _EXCLUDES.get(name)
        if other in given and values[name]:
            raise NotEdited(f"{other} is set beside it, which excludes {name}")
    added = {name: value for name, value in values.items() if name not in given}
    if added and any(arg.star for arg in node.args):
        raise NotEdited(f"arguments are passed on by * or **: {', '.join(added)} may be among them")
    if len(positional) > EDITABLE[target].positions:
        raise NotEdited("so many arguments are given by position that one of them may be meant")
    args = [_replaced(libcst, arg, values) for arg in node.args]
    for name, value in added.items():
        args = _appended(libcst, args, name, value)
    return node.with_changes(args=args)


def _replaced(libcst: Any, arg: Any, values: Mapping[str, Value]) -> Any:
    if arg.keyword is None or arg.keyword.value not in values:
        return arg
    return arg.with_changes(value=libcst.parse_expression(repr(values[arg.keyword.value])))


def _appended(libcst: Any, args: list[Any], name: str, value: Value) -> list[Any]:
    """The call with one more keyword argument, on a line of its own if the others are."""
    last = args[-1] if args else None
    if last is not None and isinstance(last.value, libcst.GeneratorExp) and not last.value.lpar and len(args) == 1:
        raise NotEdited("its one argument is a generator without brackets")
    new = libcst.Arg(
        keyword=libcst.Name(name),
        value=libcst.parse_expression(repr(value)),
        equal=libcst.AssignEqual(libcst.SimpleWhitespace(""), libcst.SimpleWhitespace("")),
    )
    if last is None:
        return [new]
    # What ends the line of the last argument, a comment included, stays on its line.
    trailing = not isinstance(last.comma, libcst.MaybeSentinel)
    end = last.comma.whitespace_after if trailing else last.whitespace_after_arg
    space = _between(libcst, args)
    if isinstance(end, libcst.ParenthesizedWhitespace):
        if isinstance(space, libcst.ParenthesizedWhitespace):
            space = space.with_changes(first_line=end.first_line)
            end = _without_comment(libcst, end)
        elif end.first_line.comment is not None:
            raise NotEdited("a comment stands behind the arguments")
    kept = last.with_changes(
        comma=libcst.Comma(whitespace_after=space), whitespace_after_arg=libcst.SimpleWhitespace("")
    )
    if trailing:
        new = new.with_changes(comma=last.comma.with_changes(whitespace_after=end))
    else:
        new = new.with_changes(whitespace_after_arg=end)
    return [*args[:-1], kept, new]


def _between(libcst: Any, args: list[Any]) -> Any:
    """White space between two arguments of the call, without comments."""
    if len(args) < 2:
        return libcst.SimpleWhitespace(" ")
    space = args[-2].comma.whitespace_after
    if not isinstance(space, libcst.ParenthesizedWhitespace):
        return libcst.SimpleWhitespace(" ")
    return _without_comment(libcst, space)


def _without_comment(libcst: Any, space: Any) -> Any:
    line = space.first_line.with_changes(comment=None, whitespace=libcst.SimpleWhitespace(""))
    return space.with_changes(first_line=line, empty_lines=[])


def _check(before: str, after: str) -> None:
    """Raise NotEdited where more than one call differs, or a comment is gone."""
    try:
        ast.parse(after)
    except SyntaxError:
        raise NotEdited("the edit would not be valid Python") from None
    for line in before.splitlines():
        comment = line.partition("#")[2]
        if comment and comment not in after:
            raise NotEdited("a comment stands in the way")


@dataclass(frozen=True)
class EditableCall:
    """A constructor or function of torch: packages, names, number of positional arguments before any set by name."""

    package: str
    names: tuple[str, ...]
    positions: int


_OPTIMIZERS = (
    *("SGD", "Adam", "AdamW", "Adagrad", "ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop"),
    "Rprop",
)


EDITABLE = {
    LOADER: EditableCall("torch.utils.data", ("DataLoader",), 5),
    DDP: EditableCall("torch.nn.parallel", ("DistributedDataParallel",), 4),
    FSDP1: EditableCall("torch.distributed.fsdp", ("FullyShardedDataParallel",), 5),
    FSDP2: EditableCall("torch.distributed", ("fully_shard",), 1),
    OPTIMIZER: EditableCall("torch.optim", _OPTIMIZERS, 2),
    ZERO_GRAD: EditableCall("", ("zero_grad",), 0),
}


# Settings whose value in the call is a name of torch's, not the value itself.
BY_OTHER_NAMES = {(FSDP1, "reshard_after_forward"), (FSDP1, "backward_prefetch")}


def is_call_of(qualified: str, target: str) -> bool:
    """True where a qualified name from a script's imports creates objects of a kind."""
    editable = EDITABLE.get(target)
    if editable is None:
        return False
    package, _, name = qualified.rpartition(".")
    if name not in editable.names:
        return False
    return not editable.package or package == editable.package or package.startswith(editable.package + ".")

"""The child process of the sandbox: this one file and the standard library, nothing of the lab.

Protocol: one line of JSON comes in on descriptor 0, then the process confines itself for good; one line of JSON a call goes out on
descriptor 1, in order, each a list [source, call, kind, text, line]. Candidates have no name for a descriptor, a module or a frame.

Three fences, each meant to hold alone: the allow-list of syntax and names below (what a candidate can say), builtins and modules
made anew for each call (what it can reach and spoil), and limits of the kernel (what the process could do if both failed).
"""

from __future__ import annotations
import __future__

import ast
import bisect
import builtins
import collections
import contextlib
import ctypes
import functools
import gc
import heapq
import itertools
import json
import math
import operator
import os
import re
import resource
import signal
import string
import struct
import sys
import time
import types
import unicodedata  # noqa: F401 - the parser asks for it, and no file can be opened by then
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MEMORY_EXIT = 9  # exit code
NESTING = 20  # levels of containers in a value
LONGEST_INT_BITS = 8_000
SILENT_S = 0.2  # lines are kept back no longer
BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("frozenset({", "})")}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NODES = _words(
    """Module Expression FunctionDef ClassDef Return Delete Assign AugAssign AnnAssign For While If With Match Raise Try Assert Import ImportFrom Global
    Nonlocal Expr Pass Break Continue BoolOp NamedExpr BinOp UnaryOp Lambda IfExp Dict Set ListComp SetComp DictComp GeneratorExp Yield YieldFrom Compare
    Call FormattedValue JoinedStr Constant Attribute Subscript Starred Name List Tuple Slice Load Store Del And Or Add Sub Mult MatMult Div Mod Pow LShift
    RShift BitOr BitXor BitAnd FloorDiv Invert Not UAdd USub Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn comprehension ExceptHandler arguments arg keyword
    alias withitem match_case MatchValue MatchSingleton MatchSequence MatchMapping MatchClass MatchStar MatchAs MatchOr"""
)
METHODS = frozenset(  # that a class may define; none is called by Python with a frame, a name or a namespace
    f"__{name}__"
    for name in _words("""init eq ne lt le gt ge hash bool len iter next contains getitem setitem delitem call repr str enter exit add sub mul truediv floordiv
    mod pow neg abs radd rsub rmul iadd isub and or xor invert reversed int float index""")
)
# Attributes that lead to frames, code, classes above, the object of an error, or read attributes that a text names.
ATTRIBUTE = re.compile(r"__.*|(gi|cr|ag|tb|f|co|func)_.*|mro|obj|format_map|with_traceback")
BUILTINS = _words(
    """abs all any ascii bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate filter float format frozenset hasattr hex int
    isinstance issubclass iter len list map max min next object oct ord pow property range repr reversed round set slice sorted staticmethod str sum tuple zip
    True False None NotImplemented Ellipsis __build_class__
    BaseException Exception ArithmeticError AssertionError AttributeError EOFError FloatingPointError IndexError KeyError LookupError MemoryError NameError
    NotImplementedError OverflowError RecursionError RuntimeError StopIteration TypeError UnboundLocalError UnicodeError ValueError
    ZeroDivisionError"""
)
OWN_BUILTINS = frozenset({"print", "type"})
OFFERED = {name: getattr(builtins, name) for name in BUILTINS}
UNSAID = frozenset(dir(builtins)) - BUILTINS - OWN_BUILTINS

MODULES: Mapping[str, tuple[Any, frozenset[str]]] = {
    "math": (math, frozenset(name for name in dir(math) if not name.startswith("_"))),
    "itertools": (itertools, frozenset(name for name in dir(itertools) if not name.startswith("_"))),
    "bisect": (bisect, frozenset({"bisect", "bisect_left", "bisect_right", "insort", "insort_left", "insort_right"})),
    "heapq": (heapq, frozenset({"heapify", "heappop", "heappush", "heappushpop", "heapreplace", "merge", "nlargest", "nsmallest"})),
    "functools": (functools, frozenset({"cache", "cmp_to_key", "lru_cache", "partial", "reduce"})),
    "collections": (collections, frozenset({"Counter", "OrderedDict", "defaultdict", "deque"})),
    # Without attrgetter and methodcaller, which read the attributes that a text names.
    "operator": (operator, _words("add and_ contains countOf eq floordiv ge gt indexOf is_ is_not itemgetter le lt mod mul ne neg not_ or_ sub truediv")),
    "re": (re, _words("I IGNORECASE M MULTILINE S DOTALL compile error escape findall finditer fullmatch match search split sub subn")),
    "string": (string, _words("ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits punctuation whitespace")),
    "typing": (None, _words("Any Callable Dict FrozenSet Hashable Iterable Iterator List Mapping Optional Sequence Set Tuple TypeVar Union")),
    "__future__": (None, frozenset({"annotations"})),
}


class Forbidden(Exception):  # noqa: N818 - the name of the outcome
    """Syntax or a name outside the allow-list; args: what, line."""


def check(tree: ast.AST) -> None:
    """Raises Forbidden for the first thing in the tree that a candidate may not say."""
    nodes = list(_in_order(tree))
    methods = {part for node in nodes if isinstance(node, ast.ClassDef) for part in node.body if isinstance(part, ast.FunctionDef) and part.name in METHODS}
    reads = {node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {text for node in nodes if node not in reads and not isinstance(node, ast.Attribute | ast.keyword) for text in _identifiers(node)}
    unsaid = UNSAID - bound - {"__name__"}  # that one is read in `if __name__ == "__main__"`
    line = 1
    for node in nodes:
        line = getattr(node, "lineno", line)
        if type(node).__name__ not in NODES:
            raise Forbidden(type(node).__name__.lower(), line)
        if isinstance(node, ast.Attribute) and node.attr == "format" and not _plain_format(node.value):
            raise Forbidden("format", line)
        if isinstance(node, ast.MatchClass) and (node.patterns or node.kwd_patterns):  # they read attributes, also those that __match_args__ names
            raise Forbidden("class pattern with attributes", line)
        if isinstance(node, ast.ClassDef) and node.keywords:
            raise Forbidden(f"class with {node.keywords[0].arg or '**'}", line)
        if isinstance(node, ast.Import | ast.ImportFrom):
            _check_import(node, line)
        elif node in reads and node.id in unsaid:
            raise Forbidden(node.id, line)
        elif node not in methods and not (node in reads and node.id == "__name__"):
            for text in _identifiers(node):
                if ATTRIBUTE.fullmatch(text) if isinstance(node, ast.Attribute) else text.startswith("__"):
                    raise Forbidden(text, line)


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes in the order of the source, so that the first forbidden thing is the first that a reader meets."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed([part for part in _parts_of(node) if isinstance(part, ast.AST)]))


def _identifiers(node: ast.AST) -> list[str]:
    """Every name in a node, whatever its field is called, so that no new kind of node can bring one past the check."""
    return [] if isinstance(node, ast.Constant) else [part for part in _parts_of(node) if isinstance(part, str)]


def _parts_of(node: ast.AST) -> list[Any]:
    """The values of the fields of a node, lists opened (ast.iter_fields takes three times as long)."""
    return [part for value in vars(node).values() for part in (value if isinstance(value, list) else (value,))]


def _check_import(node: ast.Import | ast.ImportFrom, line: int) -> None:
    for alias in node.names:
        module, part = ("." * node.level + (node.module or ""), alias.name) if isinstance(node, ast.ImportFrom) else (alias.name, None)
        if module not in MODULES:
            raise Forbidden(f"import {module}", line)
        if part is not None and part not in MODULES[module][1]:
            raise Forbidden(f"from {module} import {part}", line)
        if alias.asname and alias.asname.startswith("__"):
            raise Forbidden(alias.asname, line)


def _plain_format(node: ast.expr) -> bool:
    """Whether ``node`` is a text constant whose fields read no attribute and no item."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and _plain_fields(node.value)


def _plain_fields(text: str) -> bool:
    try:
        fields = [(name or "", spec or "") for _, name, spec, _ in string.Formatter().parse(text)]
    except ValueError:  # the call itself raises it again, as it should
        return True
    return all(not set(name) & set(".[") and (not spec or _plain_fields(spec)) for name, spec in fields)


class Hint:
    """Stands for whatever ``typing`` offers; annotations are never evaluated, but an alias such as ``Items = List[int]`` is."""

    def __getitem__(self, _: Any) -> Hint:
        return self

    def __call__(self, *_: Any, **__: Any) -> Hint:
        return self


def _fresh(value: Any) -> Any:
    """A copy of what a candidate could write an attribute to; classes of C are immutable."""
    if isinstance(value, types.FunctionType):
        copy = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, value.__closure__)
        copy.__kwdefaults__ = value.__kwdefaults__ and dict(value.__kwdefaults__)
        return copy
    if value is collections.Counter:
        methods = {name: _fresh(part) for name, part in vars(value).items() if isinstance(part, types.FunctionType)}  # each can hold a mark
        return type("Counter", (collections.Counter,), methods)
    return int(value) if isinstance(value, re.RegexFlag) else value  # the flag's class can be written to


def _import(name: str, _globals: Any = None, _locals: Any = None, _names: Any = (), level: int = 0) -> types.SimpleNamespace:
    module, names = MODULES[name]  # the allow-list has let no other name through
    return types.SimpleNamespace(**{part: Hint() if module is None else _fresh(getattr(module, part)) for part in names})


def _namespace() -> dict[str, Any]:
    """Globals for one call, sharing nothing that can be changed with any other call."""

    def type_of(value: Any, /) -> type:
        if callable(value):  # the classes of classes and of functions make new ones out of texts
            raise TypeError("type() is offered for data only")
        return type(value)

    own = {"print": lambda *_, **__: None, "type": type_of, "__import__": _fresh(_import)}
    return {"__builtins__": OFFERED | own, "__name__": "candidate"}


LIMITS = ("NPROC", "NOFILE", "FSIZE", "CORE", "MSGQUEUE", "MEMLOCK")  # to nothing: no process, no file or socket, no byte in a file
# machine -> (AUDIT_ARCH, read write mmap mprotect munmap brk mremap madvise rt_sigreturn setitimer futex getrandom clock_gettime exit exit_group)
ARCHITECTURES = {
    "x86_64": (0xC000003E, (0, 1, 9, 10, 11, 12, 25, 28, 15, 38, 202, 318, 228, 60, 231)),
    "aarch64": (0xC00000B7, (63, 64, 222, 226, 215, 214, 216, 233, 139, 103, 98, 278, 113, 93, 94)),
}


def confine(memory_bytes: int, cpu_s: int) -> None:
    """Gives up for good all that a candidate does not need. Where the kernel refuses one fence the others stand."""
    if os.geteuid() == 0:  # root passes by the limit on processes
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
    for name, most in (dict.fromkeys(LIMITS, 0) | {"AS": memory_bytes, "CPU": cpu_s}).items():
        if hasattr(resource, f"RLIMIT_{name}"):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    if sys.platform == "linux":
        _filter_system_calls()


def _filter_system_calls() -> None:
    """A seccomp filter: whatever is not needed to compute, to read and to write answers EPERM."""
    if os.uname().machine not in ARCHITECTURES:
        return
    arch, allowed = ARCHITECTURES[os.uname().machine]
    load, equal, answer = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    steps = [(load, 0, 0, 4), (equal, 1, 0, arch), (answer, 0, 0, 0x80000000), (load, 0, 0, 0)]  # another architecture: killed
    steps += [(equal, len(allowed) - i, 0, number) for i, number in enumerate(allowed)]
    steps += [(answer, 0, 0, 0x00050001), (answer, 0, 0, 0x7FFF0000)]  # SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ALLOW
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    pointer = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(pointer)), 0, 0)  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


class TooLarge(Exception):  # noqa: N818 - the name of the outcome
    """A value is too long, too deep or refers to itself."""


def show(value: Any, room: int, depth: int = 0) -> str:
    """The Python literal of plain data, sets and dicts in a fixed order, other objects as ``<type>``; no code of a candidate is called."""
    kind = type(value)
    if room <= 0 or depth > NESTING:
        raise TooLarge
    if value is None or kind in (bool, float, complex):
        return repr(value)
    if kind in (int, str, bytes):
        if (value.bit_length() > LONGEST_INT_BITS) if kind is int else (len(value) > room):
            raise TooLarge
        text = repr(value)
    elif kind in (list, tuple, set, frozenset):
        parts = _parts(value, room, depth)
        inside = ", ".join(parts if kind in (list, tuple) else sorted(parts)) + ("," if kind is tuple and len(parts) == 1 else "")
        text = inside.join(BRACKETS[kind]) if parts or kind in (list, tuple) else f"{kind.__name__}()"
    elif issubclass(kind, dict):
        keys, values = _parts(dict.keys(value), room, depth), _parts(dict.values(value), room, depth)
        text = "{" + ", ".join(f"{k}: {v}" for k, v in sorted(zip(keys, values, strict=True))) + "}"
    else:
        text = f"<{kind.__name__[:100]}>"
    if len(text) > room:
        raise TooLarge
    return text


def _parts(values: Any, room: int, depth: int) -> list[str]:
    parts = []
    for value in values:
        parts.append(show(value, room, depth + 1))
        room -= len(parts[-1]) + 1
    return parts


def arguments(text: str) -> types.CodeType:
    """Code that makes (args, kwargs) of an argument list anew each time; raises ValueError unless they are plain literals."""
    try:
        call = ast.parse(f"f({text}\n)", mode="eval").body
    except (SyntaxError, MemoryError, RecursionError):
        raise ValueError("it cannot be read") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or any(k.arg is None for k in call.keywords):
        raise ValueError("it is not a list of arguments")
    try:
        for value in (*call.args, *(k.value for k in call.keywords)):
            ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError("it holds more than plain values") from None
    named = ast.Dict([ast.Constant(k.arg) for k in call.keywords], [k.value for k in call.keywords])
    pair = ast.Expression(ast.Tuple([ast.Tuple(call.args, ast.Load()), named], ast.Load()))
    return compile(ast.fix_missing_locations(pair), "arguments", "eval")


def prepare(source: str, function: str | None) -> tuple[types.CodeType, str]:
    """The compiled source and the name of its function; raises Forbidden, or SyntaxError and its kin."""
    tree = ast.parse(source)
    check(tree)
    defined = [part.name for part in tree.body if isinstance(part, ast.FunctionDef)]
    if not defined or (function is not None and function not in defined):
        raise SyntaxError(f"no function {function}" if function else "no function is defined")
    code = compile(tree, "candidate", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    return code, function or defined[-1]


def call(code: types.CodeType, name: str, given: types.CodeType, room: int) -> tuple[str, str]:
    """Runs the source anew and its function once: (kind, text)."""
    namespace = _namespace()
    try:
        exec(code, namespace)
        args, kwargs = eval(given, {"__builtins__": {"set": set}})
        return "value", show(namespace[name](*args, **kwargs), room)
    except TooLarge:
        return "too-large", "the result is too large to show"
    except MemoryError:
        return "memory", "the memory is used up"
    except BaseException as error:  # noqa: BLE001 - whatever it raises is its outcome
        return "exception", type(error).__name__[:100]
    finally:
        namespace.clear()


def tidy() -> None:
    """Neither the patterns nor the garbage of a call take memory from the next, nor does a mark stay on the one class that can be written to."""
    re.purge()
    gc.collect()
    for name in [name for name in vars(re.error) if name[:2] != "__"]:
        delattr(re.error, name)


def serve(read: Callable[[], bytes], write: Callable[[bytes], Any]) -> None:
    """Answers one request."""
    request = json.loads(read())
    sys.stdout = sys.stderr = None  # a flag of ``re`` makes it print
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # it ends the process, so that no candidate can catch it
    confine(request["memory_bytes"], request["cpu_s"])
    budget, room = request["call_s"], request["text_chars"]
    encode = json.JSONEncoder().encode

    def arm() -> None:
        signal.setitimer(signal.ITIMER_PROF, budget)  # processor time, so that a busy host cuts nobody short

    kept: list[str] = []
    sent = time.monotonic()

    def send(*message: Any, now: bool = True) -> None:
        nonlocal sent
        kept.append(encode(message) + "\n")
        if now or time.monotonic() - sent > SILENT_S:
            write("".join(kept).encode())
            kept.clear()
            sent = time.monotonic()

    given = []
    for number, text in enumerate(request["calls"]):
        arm()
        try:
            given.append(arguments(text))
        except ValueError as error:
            return send("call", number, str(error))
    send("ready")
    gc.collect()
    gc.freeze()  # what is here now is never looked at again, which makes the collections below cheap
    first = request["first_call"]
    for i, source in enumerate(request["sources"]):
        arm()
        refused: tuple[str, str, int | None] | None = None
        try:
            code, name = prepare(source, request["function"])
        except Forbidden as error:
            refused = ("forbidden", str(error.args[0])[:100], error.args[1])
        except Exception as error:  # noqa: BLE001 - SyntaxError, and ValueError, RecursionError and MemoryError for texts that are hard to parse
            message = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply or holds characters that Python cannot read"
            refused = ("syntax", message[:100], getattr(error, "lineno", None))
        careful = i == 0 and request["careful"]
        for p in range(first, len(given)):
            arm()
            kind, text, line = refused or (*call(code, name, given[p], room), None)
            if kind == "memory" and not careful:
                raise MemoryError  # it may be the garbage of another candidate: this one is asked again alone
            tidy()
            # Each line wakes the lab, so the lines of a source go together, except where the call that ends this process is looked for.
            send(i, p, kind, text, line, now=careful or p == len(given) - 1)
        first = 0


if __name__ == "__main__":
    try:
        serve(sys.stdin.buffer.readline, lambda line: os.write(1, line))
        os._exit(0)
    except MemoryError:
        os._exit(MEMORY_EXIT)

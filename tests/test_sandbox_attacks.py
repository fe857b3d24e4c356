"""Known ways out of a Python sandbox. Each must end in its named outcome, and the sandbox must answer the next honest request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backends.runtime.sandbox import Limits, Outcome, Sandbox

HONEST = "def f(x):\n    return x + 1"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(places=1)
    yield made
    made.close()


def attack(sandbox: Sandbox, source: str, call: str = "1") -> Outcome:
    """The outcome of a hostile source, run between two honest ones that must not notice it."""
    (before,), (outcome,), (after,) = sandbox.run([HONEST, source, HONEST], [call], limits=Limits(overruns=1))
    assert before == after == Outcome("value", "2")
    return outcome


FORBIDDEN = {  # name -> (source, what is named, line)
    "subclasses": ("def f(x):\n    return ().__class__.__base__.__subclasses__()", "__subclasses__", 2),
    "mro without dunder": ("def f(x):\n    return int.mro()", "mro", 2),
    "globals of a function": ("def f(x):\n    return f.__globals__", "__globals__", 2),
    "globals of a copied library function": ("from functools import lru_cache\ndef f(x):\n    return lru_cache.__globals__['sys']", "__globals__", 3),
    "self of a builtin": ("def f(x):\n    return len.__self__.open('/etc/passwd')", "__self__", 2),
    "builtins by name": ("def f(x):\n    return __builtins__['open']", "__builtins__", 2),
    "builtins assigned": ("__builtins__ = {}\ndef f(x):\n    return 1", "__builtins__", 1),
    "builtins as an argument": ("def f(__builtins__):\n    return 1", "__builtins__", 1),
    "builtins as a global": ("def f(x):\n    global __builtins__\n    return 1", "__builtins__", 2),
    "builtins as the name of an import": ("import math as __builtins__\ndef f(x):\n    return 1", "__builtins__", 1),
    "builtins as an exception's name": ("def f(x):\n    try: 1/0\n    except ValueError as __builtins__: pass", "__builtins__", 3),
    "builtins captured by a pattern": ("def f(x):\n    match x:\n        case __builtins__: return 1", "__builtins__", 3),
    "builtins by the rest of a mapping": ("def f(x):\n    match {}:\n        case {**__builtins__}: return 1", "__builtins__", 3),
    "full-width letters": ("def f(x):\n    return ().__ｃｌａｓｓ__", "__class__", 2),
    "import of os": ("def f(x):\n    import os\n    return os.getpid()", "import os", 2),
    "import by dots": ("import os.path\ndef f(x):\n    return 1", "import os.path", 1),
    "relative import": ("from . import child\ndef f(x):\n    return 1", "import .", 1),
    "import of sys.modules": ("from sys import modules\ndef f(x):\n    return modules", "import sys", 1),
    "attrgetter": ("from operator import attrgetter\ndef f(x):\n    return 1", "from operator import attrgetter", 1),
    "methodcaller": ("from operator import methodcaller\ndef f(x):\n    return 1", "from operator import methodcaller", 1),
    "wraps, which reads attributes": ("from functools import wraps\ndef f(x):\n    return 1", "from functools import wraps", 1),
    "everything of a module": ("from math import *\ndef f(x):\n    return 1", "from math import *", 1),
    "import function": ("def f(x):\n    return __import__('os')", "__import__", 2),
    "pickle": ("import pickle\ndef f(x):\n    return pickle.loads(b'cos\\nsystem\\n.')", "import pickle", 1),
    "signal handlers": ("import signal\ndef f(x):\n    signal.signal(signal.SIGPROF, signal.SIG_IGN)", "import signal", 1),
    "ctypes": ("import ctypes\ndef f(x):\n    ctypes.string_at(0)", "import ctypes", 1),
    "gc": ("import gc\ndef f(x):\n    return gc.get_objects()", "import gc", 1),
    "inspect": ("import inspect\ndef f(x):\n    return inspect.stack()", "import inspect", 1),
    "eval": ("def f(x):\n    return eval('1')", "eval", 2),
    "exec": ("def f(x):\n    exec('import os')", "exec", 2),
    "compile": ("def f(x):\n    return compile('1', '', 'eval')", "compile", 2),
    "open": ("def f(x):\n    return open('/etc/passwd').read()", "open", 2),
    "getattr": ("def f(x):\n    return getattr(x, '__cl' + 'ass__')", "getattr", 2),
    "setattr": ("def f(x):\n    setattr(f, '__code__', 1)", "setattr", 2),
    "globals": ("def f(x):\n    return globals()['__builtins__']", "globals", 2),
    "vars": ("def f(x):\n    return vars()", "vars", 2),
    "locals": ("def f(x):\n    return locals()", "locals", 2),
    "super": ("class A:\n    def g(self): return super\ndef f(x):\n    return A().g()", "super", 2),
    "breakpoint": ("def f(x):\n    breakpoint()", "breakpoint", 2),
    "leaving": ("def f(x):\n    raise SystemExit", "SystemExit", 2),
    "str.format reads attributes": ("def f(x):\n    return '{0.__class__}'.format(x)", "format", 2),
    "str.format reads items": ("def f(x):\n    return '{0[a]}'.format({'a': 1})", "format", 2),
    "format in a format's width": ("def f(x):\n    return '{:{0.__class__}}'.format(x)", "format", 2),
    "format of a text made at run time": ("def f(x):\n    return ('{0.__cl' + 'ass__}').format(x)", "format", 2),
    "format unbound": ("def f(x):\n    return str.format('{0.__class__}', x)", "format", 2),
    "format of a subclass": ("class S(str): pass\ndef f(x):\n    return S('{0.__class__}').format(x)", "format", 3),
    "format handed on": ("def f(x):\n    s = '{0.__class__}'\n    return list(map(s.format, [x]))", "format", 3),
    "format_map": ("def f(x):\n    return '{a.__class__}'.format_map({'a': x})", "format_map", 2),
    "f-string": ("def f(x):\n    return f'{x.__class__.__base__}'", "__base__", 2),
    "f-string in a width": ("def f(x):\n    return f'{1:{x.__class__}}'", "__class__", 2),
    "generator frame": ("def f(x):\n    g = (g.gi_frame.f_back for _ in [1])\n    return list(g)", "f_back", 2),
    "generator code": ("def f(x):\n    return (i for i in []).gi_code", "gi_code", 2),
    "generator delegation": ("def f(x):\n    return (i for i in []).gi_yieldfrom", "gi_yieldfrom", 2),
    "coroutine": ("async def g(): pass\ndef f(x):\n    return g().cr_frame", "asyncfunctiondef", 1),
    "traceback": ("def f(x):\n    try: 1/0\n    except ZeroDivisionError as e: return e.__traceback__.tb_frame", "tb_frame", 3),
    "traceback from a context manager": (
        "class A:\n    def __enter__(self): return self\n    def __exit__(self, kind, error, trace):\n        self.t = trace.tb_frame.f_globals\n"
        "def f(x):\n    with A() as a: 1/0\n    return a.t",
        "f_globals",
        4,
    ),
    "traceback replaced": ("def f(x):\n    raise ValueError().with_traceback(None)", "with_traceback", 2),
    "object of an AttributeError": ("def f(x):\n    try: x.y\n    except AttributeError as e: return e.obj", "obj", 3),
    "decorator": ("@(lambda g: g.__globals__)\ndef f(x):\n    return 1", "__globals__", 1),
    "default argument": ("def f(x, y=().__class__):\n    return y", "__class__", 1),
    "annotation": ("def f(x: ().__class__):\n    return 1", "__class__", 1),
    "lambda": ("g = lambda: g.__code__\ndef f(x):\n    return g()", "__code__", 1),
    "class pattern with a keyword": ("def f(x):\n    match x:\n        case int(__class__=c): return c", "class pattern with attributes", 3),
    "class pattern by __match_args__": (
        "class A:\n    __match_args__ = ('__class__',)\ndef f(x):\n    match A():\n        case A(c): return c", "__match_args__", 2),
    "class pattern by place": ("class A: pass\ndef f(x):\n    match A():\n        case A(c): return c", "class pattern with attributes", 4),
    "__getattr__": ("class A:\n    def __getattr__(self, name): return name\ndef f(x):\n    return A().y", "__getattr__", 2),
    "__getattribute__": ("class A:\n    def __getattribute__(self, name): return name\ndef f(x):\n    return A().y", "__getattribute__", 2),
    "__init_subclass__": ("class A:\n    def __init_subclass__(cls): cls.x = 1\ndef f(x):\n    return 1", "__init_subclass__", 2),
    "__set_name__": ("class A:\n    def __set_name__(self, owner, name): pass\ndef f(x):\n    return 1", "__set_name__", 2),
    "__class_getitem__": ("class A:\n    def __class_getitem__(cls, x): return x\ndef f(x):\n    return A[1]", "__class_getitem__", 2),
    "__del__": ("class A:\n    def __del__(self): 1\ndef f(x):\n    A()", "__del__", 2),
    "__reduce__": ("class A:\n    def __reduce__(self): return (print, ())\ndef f(x):\n    return A()", "__reduce__", 2),
    "special method outside a class": ("def __len__(): return 1\ndef f(x):\n    return 1", "__len__", 1),
    "special method assigned": ("class A:\n    __eq__ = print\ndef f(x):\n    return 1", "__eq__", 2),
    "metaclass": ("class A(metaclass=print): pass\ndef f(x):\n    return 1", "class with metaclass", 1),
    "metaclass by stars": ("class A(**{'metaclass': print}): pass\ndef f(x):\n    return 1", "class with **", 1),
    "class slots": ("class A:\n    __slots__ = ('a',)\ndef f(x):\n    return 1", "__slots__", 2),
    "exception groups": ("def f(x):\n    try: 1/0\n    except* ZeroDivisionError: pass", "trystar", 2),
    "reading the memory": ("def f(x):\n    return memoryview(b'1')", "memoryview", 2),
    "reading standard input": ("def f(x):\n    return input()", "input", 2),
    "doc of a builtin": ("def f(x):\n    return len.__doc__", "__doc__", 2),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden_is_named_with_its_line(sandbox: Sandbox, name: str) -> None:
    source, what, line = FORBIDDEN[name]
    assert attack(sandbox, source) == Outcome("forbidden", what, line)


RAISES = {  # what passes the allow-list and must come to nothing
    "class of a class": ("def f(x):\n    return type(int)", "TypeError"),
    "class from a text": ("def f(x):\n    return type('A', (), {'__del__': print})", "TypeError"),
    "class of a function": ("def f(x):\n    return type(f)", "TypeError"),
    "attrgetter by its module": ("import operator\ndef f(x):\n    return operator.attrgetter('__class__')", "AttributeError"),
    "update_wrapper by its module": ("import functools\ndef f(x):\n    return functools.update_wrapper", "AttributeError"),
    "modules behind modules": ("import re\ndef f(x):\n    return re.enum.sys.modules", "AttributeError"),
    "modules behind collections": ("import collections\ndef f(x):\n    return collections.abc.sys", "AttributeError"),
    "a builtin behind a bound name": ("def g(open): pass\ndef f(x):\n    return open('/etc/passwd')", "NameError"),
    "a builtin behind del": ("def f(x):\n    eval = 1\n    del eval\n    return eval('1')", "UnboundLocalError"),
    "a class below a builtin function": ("class A(print): pass\ndef f(x):\n    return 1", "TypeError"),
    "a cause that is no exception": ("def f(x):\n    raise ValueError from 3", "TypeError"),
    "a codec that imports": ("def f(x):\n    return 'a'.encode('idna')", "LookupError"),
    "recursion in nested lists": (
        "def f(x):\n    a, b = [], []\n    for _ in range(10 ** 5): a, b = [a], [b]\n    return a == b", "RecursionError"),
    "recursion": ("def f(x):\n    return f(x)", "RecursionError"),
    "recursion in equality": ("class A:\n    def __eq__(self, other): return self == other\ndef f(x):\n    return A() == 1", "RecursionError"),
    "recursion in repr": ("class A:\n    def __repr__(self): return repr(self)\ndef f(x):\n    return repr(A())", "RecursionError"),
    "digits of a huge int": ("def f(x):\n    return str(10 ** 5000)", "ValueError"),
    "a power of text": ("def f(x):\n    return 10 ** 'a'", "TypeError"),
    "a sort that changes its list": ("def f(x):\n    a = [3, 1, 2]\n    def key(v):\n        a.append(v)\n        return v\n    a.sort(key=key)", "ValueError"),
    "a set that grows under a loop": ("def f(x):\n    s = {1}\n    for v in s: s.add(v + 1)", "RuntimeError"),
    "a codec from a file": ("def f(x):\n    return 'a'.encode('mbcs')", "LookupError"),
    "a list's method replaced": ("def f(x):\n    list.append = print", "TypeError"),
    "a library class replaced": ("from collections import deque\ndef f(x):\n    deque.append = print", "TypeError"),
    "a hint as a base": ("from typing import List\nclass A(List): pass\ndef f(x):\n    return 1", "TypeError"),
    "an exception of its own that imitates": ("class MemoryFull(Exception): pass\ndef f(x):\n    raise MemoryFull", "MemoryFull"),
}


@pytest.mark.parametrize("name", RAISES)
def test_dead_ends_raise(sandbox: Sandbox, name: str) -> None:
    source, exception = RAISES[name]
    assert attack(sandbox, source) == Outcome("exception", exception)


OVERRUNS = {
    "endless loop": ("def f(x):\n    while True: pass", "timeout"),
    "endless loop that catches all": ("def f(x):\n    while True:\n        try:\n            while True: pass\n        except: pass", "timeout"),
    "endless loop in finally": ("def f(x):\n    try: return 1\n    finally:\n        while True: pass", "timeout"),
    "endless loop when it is read": ("while True: pass\ndef f(x):\n    return 1", "timeout"),
    "endless generator": ("def f(x):\n    from itertools import count\n    return sum(1 for _ in count())", "timeout"),
    "context manager that swallows": (
        "class A:\n    def __enter__(self): return self\n    def __exit__(self, *given): return True\n"
        "def f(x):\n    while True:\n        with A():\n            while True: pass",
        "timeout",
    ),
    "endless sort key": ("def key(v):\n    while True: pass\ndef f(x):\n    return sorted([2, 1], key=key)", "timeout"),
    "endless hash": ("class A:\n    def __hash__(self):\n        while True: pass\ndef f(x):\n    return {A()}", "timeout"),
    "sum in one step of C": ("def f(x):\n    return sum(range(10 ** 12))", "timeout"),
    "search in one step of C": ("def f(x):\n    return 'a' in ('b' for _ in iter(int, 1))", "timeout"),
    "endless print": ("def f(x):\n    while True: print('a' * 1000)", "timeout"),
    "endless chain of exceptions": (
        "def f(x):\n    e = None\n    while True:\n        try: raise ValueError from e\n        except ValueError as g: e = g",
        "timeout",
    ),
    "recursion that doubles at each return": ("def f(x):\n    try: f(x)\n    finally: f(x)", "timeout"),
    "huge power": ("def f(x):\n    return 10 ** 10 ** 8", "timeout"),
    "tower of powers": ("def f(x):\n    return 9 ** 9 ** 9 ** 9", "timeout"),
    "huge factorial": ("import math\ndef f(x):\n    return math.factorial(10 ** 7)", "timeout"),
    "regular expression that explodes": ("import re\ndef f(x):\n    return re.match('(a+)+$', 'a' * 40 + 'b')", "timeout"),
    "product of many": ("from itertools import product\ndef f(x):\n    return sum(1 for _ in product(range(99), repeat=9))", "timeout"),
    "nested iterators that overflow the stack of C": (
        "def f(x):\n    m = iter([1])\n    for _ in range(10 ** 5): m = map(int, m)\n    return next(m)",
        "killed",
    ),
    "endless loop when a generator is collected": (
        "def g():\n    try: yield\n    finally:\n        while True: pass\ndef f(x):\n    a = [g()]\n    next(a[0])\n    a.append(a)",
        "timeout",
    ),
    "huge shift": ("def f(x):\n    return 1 << 10 ** 11", "memory"),
    "huge list": ("def f(x):\n    return [0] * 10 ** 9", "memory"),
    "huge text": ("def f(x):\n    return len('a' * 10 ** 10)", "memory"),
    "huge bytes": ("def f(x):\n    return len(bytearray(10 ** 10))", "memory"),
    "huge width": ("def f(x):\n    return len('%1000000000d' % x)", "memory"),
    "huge width of format": ("def f(x):\n    return len(format(x, '1000000000'))", "memory"),
    "huge star": ("def f(x):\n    return max(*[0] * 10 ** 9)", "memory"),
    "memory that is caught": ("def f(x):\n    try: return [0] * 10 ** 9\n    except MemoryError: return 'caught'", "value"),
    "huge result": ("def f(x):\n    return list(range(10 ** 5))", "too-large"),
    "huge int as a result": ("def f(x):\n    return 10 ** 5000", "too-large"),
    "result in itself": ("def f(x):\n    a = []\n    a.append(a)\n    return a", "too-large"),
    "deep result": ("def f(x):\n    a = []\n    for _ in range(10 ** 4): a = [a]\n    return a", "too-large"),
    "wide and deep result": ("def f(x):\n    a = [1]\n    for _ in range(19): a = [a, a]\n    return a", "too-large"),
    "deep parentheses": ("def f(x):\n    return " + "(" * 5000 + "1" + ")" * 5000, "syntax"),
    "deep signs": ("def f(x):\n    return " + "-" * 15000 + "1", "syntax"),
    "deep attributes": ("def f(x):\n    return x" + ".a" * 9000, "syntax"),
    "deep sum": ("def f(x):\n    return " + "1+" * 9000 + "1", "syntax"),
    "null byte": ("def f(x):\n    return 1\0", "syntax"),
    "lone surrogate": ("def f(x):\n    return '\ud800'", "syntax"),
    "long source": ("def f(x):\n    return 1\n" + "#" * 20_001, "syntax"),
    "no function": ("x = 1", "syntax"),
    "no Python": ("Sure! Here is a function:", "syntax"),
}


@pytest.mark.parametrize("name", OVERRUNS)
def test_bombs_end_in_a_named_outcome(sandbox: Sandbox, name: str) -> None:
    source, kind = OVERRUNS[name]
    assert attack(sandbox, source).kind == kind

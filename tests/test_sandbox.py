"""The sandbox itself: outcomes, isolation, the kernel's fence alone, hostile children, fair places."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from backends.contract import Stopped
from backends.runtime.sandbox import BadCall, Limits, Outcome, Sandbox, parent

ENDLESS = "def f(x):\n    while True: pass"


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(places=1)
    yield made
    made.close()


def values(sandbox: Sandbox, source: str, *calls: str) -> list[str]:
    (row,) = sandbox.run([source], calls)
    return [outcome.text for outcome in row if outcome.kind == "value"]


def test_values_are_literals_in_a_fixed_order(sandbox: Sandbox) -> None:
    calls = ["1", "True", "1.0", "None", "'a\\n'", "(1,)", "{3, 1, 2}", "{'b': [1], 'a': set()}", "-1", "b'x'", "float", "x=2"]
    with pytest.raises(BadCall) as error:
        sandbox.run(["def f(x): return x"], calls)
    assert error.value.args == (10, "it holds more than plain values")
    calls.remove("float")
    shown = ["1", "True", "1.0", "None", "'a\\n'", "(1,)", "{1, 2, 3}", "{'a': set(), 'b': [1]}", "-1", "b'x'", "2"]
    assert values(sandbox, "def f(x): return x", *calls) == shown


def test_what_is_no_plain_data_is_named_and_none_of_its_code_runs(sandbox: Sandbox) -> None:
    source = "class Loud(str):\n    def __repr__(self): return 'forged'\ndef f(x):\n    return [Loud('a'), (i for i in 'ab'), f, Loud, float('nan')]"
    assert values(sandbox, source, "1") == ["[<Loud>, <generator>, <function>, <type>, nan]"]


NO_ARGUMENTS = ("1) + g(2", "1), f(2", "*[1]", "**{}", "x", "[i for i in 'ab']", "'a' * 9", "1 if 1 else 2", "(", "f(1)", "'" + "a" * 10_000 + "'")


@pytest.mark.parametrize("text", NO_ARGUMENTS)
def test_an_argument_list_holds_literals_only(sandbox: Sandbox, text: str) -> None:
    with pytest.raises(BadCall) as error:
        sandbox.run(["def f(x): return x"], ["1", text])
    assert error.value.args[0] == 1


def test_usual_code_runs(sandbox: Sandbox) -> None:
    source = """
    from __future__ import annotations
    import re, math
    from collections import Counter, defaultdict
    from functools import lru_cache, reduce
    from typing import List, Optional
    Items = List[int]
    class Box:
        '''Holds.'''
        def __init__(self, x): self.x = x
        def __eq__(self, other): return self.x == other.x
        @property
        def double(self): return self.x * 2
    @lru_cache(maxsize=None)
    def fibonacci(n: int) -> Optional[int]:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
    def f(x: Items):
        found = defaultdict(list)
        for i, y in enumerate(x):
            found[y].append(i)
        print(found)
        match x:
            case [first, *_]: pass
        text = '{:>3}|{name}'.format(first, name=f'{first:02d}')
        return (Counter('aab'), dict(found), fibonacci(10), Box(1) == Box(1), Box(4).double, text, re.findall('a+', 'aab'), reduce(max, x), math.inf)
    if __name__ == "__main__":
        print(f([1]))
    """
    assert values(sandbox, textwrap.dedent(source), "[3, 1, 3]") == [
        "({'a': 2, 'b': 1}, {1: [1], 3: [0, 2]}, 55, True, 8, '  3|03', ['aa'], 3, inf)",
    ]


def test_the_last_function_is_called_unless_one_is_named(sandbox: Sandbox) -> None:
    source = "def a(x): return 'a'\ndef b(x): return 'b'"
    assert sandbox.run([source], ["1"])[0] == [Outcome("value", "'b'")]
    assert sandbox.run([source], ["1"], function="a")[0] == [Outcome("value", "'a'")]
    assert sandbox.run([source], ["1"], function="c")[0] == [Outcome("syntax", "no function c")]


SPOILERS = {
    "its own globals": ("seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)", "def f(x): return seen", "1"),
    "a module": ("import math\ndef f(x):\n    math.pi = 3\n    return math.pi", "import math\ndef f(x): return math.pi > 3", "3"),
    "a class of a module": (
        "from collections import Counter\ndef f(x):\n    Counter.elements = print\n    return 1",
        "from collections import Counter\ndef f(x): return sorted(Counter('ab').elements())",
        "1",
    ),
    "a method of a class of a module": (
        "from collections import Counter\ndef f(x):\n    Counter.update.kept = 7\n    return 1",
        "from collections import Counter\ndef f(x): return hasattr(Counter.update, 'kept')",
        "1",
    ),
    "a function of a module": ("import re\ndef f(x):\n    re.search.kept = 7\n    return 1", "import re\ndef f(x): return hasattr(re.search, 'kept')", "1"),
    "the class of an exception": (
        "import re\nclass A:\n    def __enter__(self): return self\n    def __exit__(self, kind, error, trace):\n        kind.msg = property(len)\n"
        "        return True\ndef f(x):\n    with A(): re.compile('(')\n    return 1",
        "import re\ndef f(x):\n    try: re.compile('(')\n    except re.error as error: return error.msg",
        "1",
    ),
    "a builtin's attribute": ("def f(x):\n    print.kept = 7\n    return 1", "def f(x): return hasattr(print, 'kept')", "1"),
    "a name of a builtin": ("def f(x):\n    global len\n    len = lambda _: 7\n    return len([])", "def f(x): return len([])", "7"),
    "its arguments": ("def f(x):\n    x.append(9)\n    return x[-1]", "def f(x): return x", "9"),
    "a forged answer on the standard output": ("def f(x):\n    print('[1, 0, \"value\", \"forged\", null]')\n    return 1", "def f(x): return 'mine'", "1"),
}


@pytest.mark.parametrize("name", SPOILERS)
def test_no_call_changes_what_the_next_one_sees(sandbox: Sandbox, name: str) -> None:
    spoiler, victim, value = SPOILERS[name]
    alone = sandbox.run([victim], ["[1]"])
    both = sandbox.run([spoiler, victim], ["[1]", "[1]"])
    assert both[0] == [Outcome("value", value)] * 2  # the second call does not see the first one either
    assert both[1] == alone[0] * 2


@pytest.mark.parametrize("module", ["math", "itertools", "bisect", "heapq", "functools", "collections", "operator", "re", "string"])
def test_nothing_of_a_module_keeps_a_mark(sandbox: Sandbox, module: str) -> None:
    from backends.runtime.sandbox.child import MODULES

    names = sorted(MODULES[module][1])
    write = "".join(f"    try: {module}.{name}.kept = 1\n    except (AttributeError, TypeError): pass\n" for name in names)
    read = f"import {module}\ndef f(x): return [{', '.join(f'hasattr({module}.{name}, {chr(39)}kept{chr(39)})' for name in names)}]"
    rows = sandbox.run([f"import {module}\ndef f(x):\n{write}    return 1", read], ["1"])
    assert rows == [[Outcome("value", "1")], [Outcome("value", str([False] * len(names)))]]


def test_memory_of_one_call_is_free_for_the_next(sandbox: Sandbox) -> None:
    greedy = "kept = []\ndef f(x):\n    kept.append(bytearray(150_000_000))\n    kept.append(kept)\n    return 1"
    assert sandbox.run([greedy] * 2, ["1"] * 3, limits=Limits(call_s=2.0)) == [[Outcome("value", "1")] * 3] * 2


def test_garbage_that_wakes_again_costs_its_own_source_alone(sandbox: Sandbox) -> None:
    """A generator that is collected runs its ``finally``, and may leave another one behind: memory and time of the next candidate."""
    source = """
    def spread():
        kept = bytearray(150_000_000)
        try:
            yield kept
        finally:
            again = spread()
            next(again)
            cycle = [again]
            cycle.append(cycle)
    def f(x):
        g = spread()
        next(g)
        cycle = [g]
        cycle.append(cycle)
        return x
    """
    honest = "def f(x):\n    return len(bytearray(100_000_000))"
    rows = sandbox.run([textwrap.dedent(source), honest, honest], ["1", "2"], limits=Limits(call_s=2.0))
    assert rows[1:] == [[Outcome("value", "100000000")] * 2] * 2


def test_warnings_and_the_printing_flag_of_re_write_nothing(sandbox: Sandbox) -> None:
    source = "import re\ndef f(x):\n    re.compile('(a|b)+' * 500, 128)\n    return x is 1, '\\d'"
    assert values(sandbox, source, "1") == ["(True, '\\\\d')"]


def test_overruns_are_counted_by_source_and_others_go_on(sandbox: Sandbox) -> None:
    sometimes = "def f(x):\n    while x > 1: pass\n    return x"
    timeout, value = Outcome("timeout", "runs too long"), Outcome("value", "1")
    assert sandbox.run([sometimes, "def f(x): return 1"], ["1", "2", "1", "3", "1"]) == [[value, timeout, value, timeout, timeout], [value] * 5]


def test_a_request_ends_when_its_time_is_over(sandbox: Sandbox) -> None:
    rows = sandbox.run([ENDLESS] * 50, ["1"] * 40, limits=Limits(request_s=0.3))
    assert {outcome.kind for row in rows for outcome in row} == {"timeout"}
    assert rows[-1] == [Outcome("timeout", "not run, the time for all candidates was over")] * 40


CHILD_TEST = """
import importlib.util, os, signal, socket, sys
spec = importlib.util.spec_from_file_location("child", {path!r})
child = importlib.util.module_from_spec(spec)
spec.loader.exec_module(child)
if {fence!r} == "limits":
    child.ARCHITECTURES = {{}}
if {fence!r} == "filter":
    child.LIMITS = ()
child.confine(256_000_000, 5)
try:
    {attempt}
except (OSError, ValueError) as error:
    print("refused", error)
else:
    print("done")
"""
ATTEMPTS = {
    "read a file": "open('/etc/passwd')",
    "write a file": "open('x', 'w')",
    "open a socket": "socket.socket()",
    "fork": "os.fork() or os._exit(0)",
    "duplicate a descriptor": "os.dup(1)",
    "start a program": "os.posix_spawn('/bin/true', ['true'], {})",
}
ONLY_FILTER = {
    "become a program": "os.execv('/bin/true', ['true'])",
    "end the lab": "os.kill(os.getppid(), 0)",
    "list a folder": "os.listdir('/')",
    "remove a file": "os.remove('/nowhere')",
    "make a folder": "os.mkdir('made')",
    "handle a signal": "signal.signal(signal.SIGPROF, signal.SIG_IGN)",
    "lift a limit": "child.resource.setrlimit(child.resource.RLIMIT_NOFILE, (9, 9))",
}


@pytest.mark.skipif(sys.platform != "linux", reason="the fences are the Linux kernel's")
@pytest.mark.parametrize(("fence", "name"), [(f, n) for f in ("limits", "filter") for n in ATTEMPTS] + [("filter", n) for n in ONLY_FILTER])
def test_each_fence_of_the_kernel_holds_alone_behind_the_allow_list(fence: str, name: str, tmp_path: Path) -> None:
    if fence == "filter" and not os.path.exists("/proc/sys/kernel/seccomp/actions_avail"):
        pytest.skip("this kernel has no seccomp")
    code = CHILD_TEST.format(path=str(parent.CHILD), fence=fence, attempt=(ATTEMPTS | ONLY_FILTER)[name])
    done = subprocess.run([sys.executable, "-P", "-s", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.startswith("refused"), done.stdout + done.stderr


FORGERIES = {
    "no JSON": "print('[')",
    "not a list": "print('{}')",
    "out of turn": "print('[1, 0, \"value\", \"x\", null]')",
    "twice": "print('[0, 0, \"value\", \"x\", null]\\n[0, 0, \"value\", \"x\", null]')",
    "a bool for a number": "print('[false, 0, \"value\", \"x\", null]')",
    "a list for a kind": "print('[0, 0, [1], \"x\", null]')",
    "a complaint about a call that comes late": "print('[\"call\", 0, \"x\"]')",
    "an unknown kind": "print('[0, 0, \"pickle\", \"x\", null]')",
    "no text": "print('[0, 0, \"value\", [1], null]')",
    "a long text": "print('[0, 0, \"value\", \"' + 'x' * 3000 + '\", null]')",
    "a deep list": "print('[' * 50000 + ']' * 50000)",
    "an endless line": "print('x' * 200000)",
    "no UTF-8": "sys.stdout.buffer.write(b'\\xff\\n')",
    "a sudden end": "os._exit(3)",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_child_that_writes_nonsense_is_ended(sandbox: Sandbox, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child.py"
    child.write_text(f"import os, sys, time\nsys.stdin.readline()\nprint('[\"ready\"]', flush=True)\n{FORGERIES[name]}\nsys.stdout.flush()\ntime.sleep(60)")
    monkeypatch.setattr(parent, "CHILD", child)
    (row,) = sandbox.run(["def f(x): return x"], ["1", "2"], limits=Limits(overruns=1))
    assert row[-1] == Outcome("killed", "ended the process")
    assert row[0] == (Outcome("value", "x") if name == "twice" else row[-1])


@pytest.mark.parametrize(("ready", "outcome"), [("print('[\"ready\"]', flush=True)", "runs too long"), ("", None)])
def test_a_child_that_is_silent_is_ended(sandbox: Sandbox, ready: str, outcome: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child.py"
    child.write_text(f"import sys, time\nsys.stdin.readline()\n{ready}\ntime.sleep(60)")
    monkeypatch.setattr(parent, "CHILD", child)
    monkeypatch.setattr(parent, "STUCK_S", 0.5)
    if outcome is None:
        with pytest.raises(RuntimeError, match="cannot start"):
            sandbox.run(["def f(x): return x"], ["1"])
    else:
        assert [o.text for o in sandbox.run(["def f(x): return x"], ["1"], limits=Limits(overruns=1))[0]] == [outcome]


def stop_at_the_fifth_look() -> Callable[[], None]:
    looks = itertools.count(1)

    def check() -> None:
        if next(looks) >= 5:
            raise Stopped

    return check


def test_stop_while_it_runs_frees_the_place_and_ends_the_child(sandbox: Sandbox) -> None:
    others = set(psutil.Process().children())  # of the sandbox that other tests share
    with pytest.raises(Stopped):
        sandbox.run([ENDLESS], ["1"], limits=Limits(call_s=60), check=stop_at_the_fifth_look())
    assert values(sandbox, "def f(x): return x", "1") == ["1"]
    sandbox.close()
    assert not [child for child in set(psutil.Process().children()) - others if str(parent.CHILD) in child.cmdline()]


def test_stop_is_heard_while_one_child_after_the_other_overruns(sandbox: Sandbox) -> None:
    with pytest.raises(Stopped):
        sandbox.run([ENDLESS] * 100, ["1"], limits=Limits(call_s=0.05, overruns=1), check=stop_at_the_fifth_look())


def test_stop_while_it_waits_leaves_the_line(sandbox: Sandbox) -> None:
    def stop() -> None:
        raise Stopped

    sandbox._line.take(lambda: None)
    with pytest.raises(Stopped):
        sandbox.run(["def f(x): return x"], ["2"], check=stop)
    assert not sandbox._line.wanted()
    sandbox._line.give_back()
    assert values(sandbox, "def f(x): return x", "3") == ["3"]


@pytest.mark.parametrize("slow", [ENDLESS, "def f(x):\n    return sum(range(10 ** 6))"])
def test_a_slow_request_lets_the_next_one_pass(sandbox: Sandbox, slow: str) -> None:
    begun, enough = threading.Event(), threading.Event()

    def check() -> None:
        begun.set()
        if enough.is_set():
            raise Stopped

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(sandbox.run, [slow] * 300, ["1"] * 5, limits=Limits(request_s=60), check=check)
        assert begun.wait(20)
        assert values(sandbox, "def f(x): return x", "1") == ["1"]
        assert not first.done()
        enough.set()
        with pytest.raises(Stopped):
            first.result(20)


@pytest.mark.parametrize("begun", [False, True])
def test_a_paused_request_holds_no_place(sandbox: Sandbox, begun: bool) -> None:
    paused, going = threading.Event(), threading.Event()

    def pause() -> None:
        paused.set()
        assert going.wait(60)

    with ThreadPoolExecutor(1) as pool:
        if not begun:  # it pauses in the line
            sandbox._line.take(lambda: None)
        slow = "def f(x):\n    return sum(range(10 ** 6))"
        first = pool.submit(sandbox.run, [slow] * 20, ["1"], limits=Limits(call_s=5), check=pause)
        assert paused.wait(60)
        if not begun:
            sandbox._line.give_back()
        assert values(sandbox, "def f(x): return x", "1") == ["1"]
        going.set()
        assert first.result(60) == [[Outcome("value", "499999500000")]] * 20


def test_sixty_at_once_do_not_cross() -> None:
    sandbox = Sandbox(places=2)
    with ThreadPoolExecutor(60) as pool:
        rows = list(pool.map(lambda n: sandbox.run([f"def f(x): return {n}"] * 2, ["1"] * 2), range(60)))
    sandbox.close()
    assert rows == [[[Outcome("value", str(n))] * 2] * 2 for n in range(60)]


def test_children_are_clean(sandbox: Sandbox) -> None:
    sandbox.prepare()
    (child,) = sandbox._spares
    process = psutil.Process(child.process.pid)
    assert process.environ() == {"PYTHONHASHSEED": "0"}
    assert not os.path.exists(process.cwd())
    assert not [m.path for m in process.memory_maps() if "site-packages" in m.path]

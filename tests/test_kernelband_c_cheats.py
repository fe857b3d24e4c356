"""Known ways to fake a speed-up, each planted as a kernel that must be rejected; and kernels that crash, hang or are not there."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator

import pytest

from backends.contract import InputError, Stopped
from backends.kernelband.c import CSubstrate, compiler, measuring, screening
from backends.kernelband.c.kernels import KERNELS
from backends.kernelband.substrate import Built, Failure, Timing

HEAD = "#include <math.h>\n#include <stddef.h>\n#include <stdlib.h>\n#include <string.h>\n"
SIGNATURE = KERNELS["matmul"].signature
SIZE = 64
# An honest product that a plant calls when it pretends to work; static, so that it is no other function of the object.
HONEST = """static void work_it(const float *A, const float *B, float *C, long m, long n, long k) {
    for (long i = 0; i < m; ++i)
        for (long j = 0; j < n; ++j) {
            float acc = 0.0f;
            for (long p = 0; p < k; ++p) acc += A[i * k + p] * B[p * n + j];
            C[i * n + j] = acc;
        }
}
"""
CHECK_CALLS = 4  # two sizes, twice each

pytestmark = pytest.mark.skipif(not any(map(compiler.shutil.which, compiler.COMPILERS)), reason="no C compiler here")


@pytest.fixture(scope="module")
def substrate() -> Iterator[CSubstrate]:
    made = CSubstrate(1)
    yield made
    made.close()


def plant(body: str, before: str = "") -> str:
    return f"{HEAD}{before}{HONEST}{SIGNATURE} {{\n{body}\n}}\n"


def judge(substrate: CSubstrate, source: str) -> Failure | Timing:
    built = substrate.compile(substrate.written("matmul", SIZE, source))
    if isinstance(built, Failure):
        return built
    return substrate.check(built) or substrate.time(built, None)


def rejected(substrate: CSubstrate, source: str, kind: str, words: str) -> None:
    found = judge(substrate, source)
    assert isinstance(found, Failure), f"accepted, with {found}"
    assert (found.kind, bool(re.search(words, found.text))) == (kind, True), found


def test_honest_text_is_accepted(substrate: CSubstrate) -> None:
    found = judge(substrate, plant("work_it(A, B, C, m, n, k);"))
    assert isinstance(found, Timing), found
    assert found.ms > 0
    assert found.runs >= measuring.LEAST_RUNS


def test_output_left_from_an_earlier_run(substrate: CSubstrate) -> None:
    """Works while it is checked and once more; then it finds its old result in the output."""
    body = f"static int calls; if (calls++ <= {CHECK_CALLS}) work_it(A, B, C, m, n, k);"
    rejected(substrate, plant(body), "cheat", "fastest timed run.*never written")


def test_output_kept_in_memory_of_its_own(substrate: CSubstrate) -> None:
    body = f"""static int calls; static float kept[{SIZE * SIZE}];
    if (calls++ <= {CHECK_CALLS}) {{ work_it(A, B, C, m, n, k); if (m == {SIZE}) memcpy(kept, C, sizeof kept); }}
    else memcpy(C, kept, sizeof kept);"""
    rejected(substrate, plant(body), "cheat", "fastest timed run")


def test_result_kept_in_the_scratch(substrate: CSubstrate) -> None:
    body = f"""static int calls; const size_t bytes = m * n * sizeof(float);
    if (calls++ <= {CHECK_CALLS}) {{ work_it(A, B, C, m, n, k); memcpy(work, C, bytes); }} else memcpy(C, work, bytes);"""
    rejected(substrate, plant(body), "cheat", "fastest timed run")


@pytest.mark.parametrize("sizes", ["", f"m == {SIZE} && "], ids=["always", "when timed"])
def test_result_cached_by_a_fingerprint_of_the_inputs(substrate: CSubstrate, sizes: str) -> None:
    body = f"""static const float *seen; static float print[4], *kept;
    const float now[4] = {{A[0], A[m * k - 1], B[0], B[k * n - 1]}};
    if ({sizes}seen == A && !memcmp(print, now, sizeof now)) {{ memcpy(C, kept, m * n * sizeof(float)); return; }}
    work_it(A, B, C, m, n, k);
    free(kept); kept = malloc(m * n * sizeof(float)); memcpy(kept, C, m * n * sizeof(float));
    memcpy(print, now, sizeof now); seen = A;"""
    rejected(substrate, plant(body), "cheat", "fastest timed run" if sizes else "not when called again|fastest timed run")


def test_work_moved_to_another_thread(substrate: CSubstrate) -> None:
    rejected(substrate, THREAD, "cheat", "calls pthread_create")


THREAD = plant(
    """static struct job j; j = (struct job){A, B, C, m, n, k};
    unsigned long t; pthread_create(&t, 0, run, &j); pthread_detach(t);""",
    """int pthread_create(unsigned long *, const void *, void *(*)(void *), void *); int pthread_detach(unsigned long);
static void work_it(const float *, const float *, float *, long, long, long);
struct job { const float *A, *B; float *C; long m, n, k; };
static void *run(void *of) {
    struct job *j = of;
    for (volatile long wait = 0; wait < 20000000; ++wait) {}
    work_it(j->A, j->B, j->C, j->m, j->n, j->k);
    return 0;
}
""",
)


def unscreened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opens the first door, to see whether the second holds."""
    monkeypatch.setattr(screening, "ALLOWED", re.compile(".*"))
    monkeypatch.setattr(screening.ctypes, "CDLL", lambda _name: object())


def test_work_moved_to_another_thread_is_also_seen_when_it_runs(substrate: CSubstrate, monkeypatch: pytest.MonkeyPatch) -> None:
    unscreened(monkeypatch)
    rejected(substrate, THREAD, "cheat", "more threads than allowed")


def test_work_left_undone_until_the_next_call(substrate: CSubstrate) -> None:
    body = f"""static int calls; static struct {{ const float *A, *B; float *C; long m, n, k; }} old;
    if (calls++ <= {CHECK_CALLS}) {{ work_it(A, B, C, m, n, k); return; }}
    if (old.A) work_it(old.A, old.B, old.C, old.m, old.n, old.k);
    old.A = A; old.B = B; old.C = C; old.m = m; old.n = n; old.k = k;"""
    rejected(substrate, plant(body), "cheat", "fastest timed run")


def test_only_some_runs_cheat(substrate: CSubstrate) -> None:
    """One lazy run in seven is enough to have the minimum; the minimum is the run that is looked at."""
    body = f"static int calls; if (calls++ <= {CHECK_CALLS} || calls % 7) work_it(A, B, C, m, n, k);"
    rejected(substrate, plant(body), "cheat", "fastest timed run")


def test_input_changed_in_place(substrate: CSubstrate) -> None:
    rejected(substrate, plant("work_it(A, B, C, m, n, k); ((float *)A)[k] = 0.0f;"), "cheat", "changed its input A")


def test_patched_timer(substrate: CSubstrate) -> None:
    before = "struct when { long s, ns; };\nint clock_gettime(int clock, struct when *t) { t->s = 1; t->ns = 1; return 0; }\n"
    rejected(substrate, plant("work_it(A, B, C, m, n, k);", before), "cheat", "defines clock_gettime")


def test_a_patched_timer_does_not_reach_the_clock(substrate: CSubstrate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it let in, the symbols of a loaded object would still not replace those of the process."""
    unscreened(monkeypatch)
    before = "struct when { long s, ns; };\nint clock_gettime(int clock, struct when *t) { t->s = 1; t->ns = 1; return 0; }\n"
    found = judge(substrate, plant("work_it(A, B, C, m, n, k);", before))
    assert isinstance(found, Timing), found
    assert found.ms > 0.001


@pytest.mark.parametrize("every", [1, 5], ids=["always", "now and then"])
def test_a_clock_that_lies_is_told_by_the_processor_time(substrate: CSubstrate, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    truth, calls = measuring.Child.call, itertools.count()

    def lying(*given: object) -> tuple[int, int]:
        ns, threads = truth(*given)  # type: ignore[arg-type]
        return ns if next(calls) % every else ns // 1000, threads

    monkeypatch.setattr(measuring.Child, "call", lying)
    rejected(substrate, plant("for (int again = 0; again < 40; ++again) work_it(A, B, C, m, n, k);"), "cheat", "of processor time")


def test_constant_output(substrate: CSubstrate) -> None:
    rejected(substrate, plant("for (long q = 0; q < m * n; ++q) C[q] = 0.25f;"), "cheat", "the constant 0.25")


LATE = "fastest timed run"
DOTS = "for (long j = 0; j < n; ++j) { float a = 0; for (long q = 0; q < k; ++q) a += A[i * k + q] * B[q * n + j]; C[i * n + j] = a; }"
KEEP = f"static float kept[{SIZE * SIZE}]; static int have;"
# Each way once more, in two other forms: (body, what stands before it, kind, words).
VARIANTS: dict[str, tuple[str, str, str, str]] = {
    "output memory: only every other row is made anew": (
        f"static int calls; if (calls++ <= {CHECK_CALLS}) work_it(A, B, C, m, n, k); else for (long i = 0; i < m; i += 2) {DOTS}",
        "",
        "cheat",
        LATE,
    ),
    "output memory: the address is the same, so the result may be": (
        f"static float *last; static int calls; if (calls++ > {CHECK_CALLS} && last == C) return; work_it(A, B, C, m, n, k); last = C;",
        "",
        "cheat",
        LATE,
    ),
    "fingerprint: the address of an input": (
        f"{KEEP} if (m == {SIZE} && have) {{ memcpy(C, kept, sizeof kept); return; }} work_it(A, B, C, m, n, k); "
        f"if (m == {SIZE}) {{ memcpy(kept, C, sizeof kept); have = 1; }}",
        "",
        "cheat",
        LATE,
    ),
    "fingerprint: of each row of one input alone": (
        f"{KEEP} static float first[{SIZE}]; for (long i = 0; i < m; ++i) {{ "
        f"if (m == {SIZE} && have && first[i] == A[i * k]) memcpy(C + i * n, kept + i * n, n * sizeof(float)); else {{ {DOTS} }} "
        f"if (m == {SIZE}) {{ first[i] = A[i * k]; memcpy(kept + i * n, C + i * n, n * sizeof(float)); }} }} if (m == {SIZE}) have = 1;",
        "",
        "cheat",
        LATE,
    ),
    "other threads: a team of OpenMP larger than allowed": (
        "_Pragma(\"omp parallel num_threads(3)\") { if (omp_get_thread_num() == 2) work_it(A, B, C, m, n, k); }",
        "#include <omp.h>\n",
        "cheat",
        "more threads than allowed",
    ),
    "other threads: those of C itself": (
        "unsigned long t; thrd_create(&t, 0, 0);",
        "int thrd_create(unsigned long *, int (*)(void *), void *);\n",
        "cheat",
        "calls thrd_create",
    ),
    "left undone: one half now, the other at the next call": (
        f"static int calls; static const float *a, *b; static float *c; if (calls++ <= {CHECK_CALLS}) {{ work_it(A, B, C, m, n, k); return; }} "
        "if (a) work_it(a + m / 2 * k, b, c + m / 2 * n, m / 2, n, k); work_it(A, B, C, m / 2, n, k); a = A; b = B; c = C;",
        "",
        "cheat",
        LATE,
    ),
    "left undone: until the process ends": ("atexit(later);", "static void later(void) {}\n", "cheat", "calls (__cxa_)?atexit"),
    "input: one bit of it": ("work_it(A, B, C, m, n, k); *(unsigned *)&((float *)A)[0] ^= 1;", "", "cheat", "changed its input A"),
    "input: zeros before the work, when timed": (
        f"if (m == {SIZE}) memset((float *)B, 0, k * n * sizeof(float)); work_it(A, B, C, m, n, k);",
        "",
        "cheat",
        "changed its input B",
    ),
    "timer: under another name": (
        "work_it(A, B, C, m, n, k);",
        'static int mine(int c, void *t) { return 0; }\nint clock_gettime(int, void *) __attribute__((alias("mine")));\n',
        "cheat",
        "defines clock_gettime",
    ),
    "timer: the clock is set back": ("clock_settime(0, 0); work_it(A, B, C, m, n, k);", "int clock_settime(int, const void *);\n", "cheat", "clock_settime"),
    "constant: only when timed": (f"if (m == {SIZE}) memset(C, 0, m * n * sizeof(float)); else work_it(A, B, C, m, n, k);", "", "cheat", "the constant 0"),
    "constant: without end": ("for (long q = 0; q < m * n; ++q) C[q] = INFINITY;", "", "cheat", "the constant inf"),
    "constant: one row for all": (
        "work_it(A, B, C, 1, n, k); for (long i = 1; i < m; ++i) memcpy(C + i * n, C, n * sizeof(float));",
        "",
        "wrong",
        re.escape("C[1, 0]"),
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_other_forms_of_the_known_ways(substrate: CSubstrate, name: str) -> None:
    body, before, kind, words = VARIANTS[name]
    rejected(substrate, plant(body, before), kind, words)


FORK, CLONE, OLD_GATE = "0xb8, 57, 0, 0, 0, 0x0f, 0x05, 0xc3", "0xb8, 56, 0, 0, 0, 0x0f, 0x05, 0xc3", "0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the machine code is that of x86-64")
@pytest.mark.parametrize("code", [FORK, CLONE, OLD_GATE], ids=["fork", "clone", "32-bit gate"])
def test_machine_code_that_hides_in_numbers(substrate: CSubstrate, code: str) -> None:
    """The disassembler takes it for data, so that only the filter of system calls can tell."""
    before = f'static const unsigned char code[] __attribute__((section(".text"))) = {{{code}}};\n'
    rejected(substrate, plant("((int (*)(int, int))code)(17, 0); work_it(A, B, C, m, n, k);", before), "cheat", "asked the operating system for")


def test_nothing_written(substrate: CSubstrate) -> None:
    rejected(substrate, plant(""), "wrong", "never written")


def test_no_such_function(substrate: CSubstrate) -> None:
    rejected(substrate, plant("work_it(A, B, C, m, n, k);").replace("void matmul(", "void product("), "wrong", "does not define the function matmul")


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("*(volatile int *)8 = 1;", "crash", "SIGSEGV"),
        ("work_it(A, B, C, m, n, k); C[m * n] = 1.0f;", "wrong", "outside its buffers"),  # the pattern behind the odd sizes
        ("work_it(A, B, C, m, n, k); ((volatile float *)C)[m * n + 16] = 1.0f;", "crash", "SIGSEGV"),
        ("work_it(A, B, C, m, n, k); ((volatile float *)C)[-1] = 1.0f;", "wrong", "outside its buffers"),
        ("work_it(A, B, C, m, n, k); ((volatile float *)C)[-1000] = 1.0f;", "crash", "SIGSEGV"),
        ("work_it(A, B, C, m, n, k); ((volatile float *)C)[-4096] = 1.0f;", "cheat", "changed its input B"),
        ("volatile float *much = malloc(1L << 33); for (long q = 0; q < 1L << 31; q += 1024) much[q] = 1.0f; work_it(A, B, C, m, n, k);", "crash", "SIGSEGV"),
        ("char deep[100000000]; memset(deep, 1, sizeof deep); C[0] = ((volatile char *)deep)[m];", "crash", "SIGSEGV"),
    ],
    ids=["null", "just-behind", "far-behind", "just-before", "far-before", "farther-before", "too-much-memory", "too-deep-stack"],
)
def test_memory_that_is_not_its_own(substrate: CSubstrate, body: str, kind: str, words: str) -> None:
    rejected(substrate, plant(body), kind, words)


ENDLESS = plant("for (volatile int on = 1; on;) {}")


def test_an_endless_loop_ends(substrate: CSubstrate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "LEAST_LIMIT_S", 0.3)
    rejected(substrate, ENDLESS, "timeout", "did not end within 0.3 s")
    assert isinstance(judge(substrate, plant("work_it(A, B, C, m, n, k);")), Timing), "the next kernel has a process again"


def test_a_stop_ends_an_endless_loop() -> None:
    def stop() -> None:
        if running:
            raise Stopped

    running: list[Callable[[], None]] = []
    made = CSubstrate(1, stop)
    try:
        built = made.compile(made.written("matmul", SIZE, ENDLESS))
        assert isinstance(built, Built)
        running.append(stop)
        with pytest.raises(Stopped):
            made.check(built)
        assert made._child._process is None, "nothing runs on"
    finally:
        made.close()


@pytest.mark.parametrize(
    ("before", "body", "words"),
    [
        ('#include "/etc/passwd"\n', "", "includes"),
        ("#  include </proc/self/environ>\n", "", "includes"),
        ("", '__asm__ volatile("syscall");', "__asm__"),
        ("#define AS a##sm\n", "", "##"),
        ("int system(const char *);\n", 'system("true");', "calls system"),
        ("void exit(int);\n", "exit(0);", "calls exit"),
        ("long write(int, const void *, unsigned long);\n", 'write(3, "{}\\n", 3);', "calls write"),
        ("void *dlsym(void *, const char *);\n", 'dlsym(0, "fork");', "calls dlsym"),
    ],
)
def test_what_a_kernel_has_no_need_of(substrate: CSubstrate, before: str, body: str, words: str) -> None:
    rejected(substrate, plant(f"{body} work_it(A, B, C, m, n, k);", before), "cheat", re.escape(words))


def test_a_host_without_a_compiler_renders_and_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    made = CSubstrate(1)
    try:
        assert not made.can_time
        candidate = made.naive("matmul", SIZE)
        assert made.edits(candidate, 0)
        with pytest.raises(InputError, match="no C compiler"):
            made.compile(candidate)
    finally:
        made.close()

"""A profile as Markdown to post in an issue: the machine, and its runs as a table in llama-bench's terms.

Rows are named as llama-bench names its tests: `pp512` is a prompt of 512 tokens, `tg128` an answer of 128, `@ d82`
behind 82 tokens. What is not known is a dash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twofold.profiles.activations import activation_words
from twofold.profiles.errors import InvalidProfile
from twofold.profiles.export import in_words
from twofold.profiles.figures import Figure
from twofold.profiles.hardware import Gpu, HardwareProfile, KernelTiming, ObservedRun
from twofold.profiles.identity import personal_words
from twofold.profiles.redaction import refuse_personal
from twofold.profiles.text import one_line

HEAD = "### twofold on "
"""How the text begins, by which a file of it is known."""
MAX_BYTES = 256 << 10
MAX_KERNELS = 32
# An interquartile range of a normal distribution in standard deviations.
IQR_SD = 1.349

_SPEEDS = ("model", "size", "params", "backend", "threads", "type_k", "type_v", "draft", "test", "t/s")
_RUNS = (*_SPEEDS, "peak MiB", "plan MiB")
_KERNELS = ("kernel", "shape", "bits", "rows", "isa", "threads", "µs")


def markdown_bytes(
    profile: HardwareProfile, *, words: Iterable[str] | None = None, allowed: Iterable[str] = ()
) -> bytes:
    """What `twofold profile export --markdown` writes; every value is looked at before and every line after.

    Raises:
        UnsafeToShare: when a value could identify a person or machine.
        InvalidProfile: when the text is too large for an issue.
    """
    names, excused = personal_words() if words is None else tuple(words), tuple(allowed)
    refuse_personal(in_words(profile.model_dump(mode="json")), names, excused)
    lines = [str(in_words(line)) for line in markdown_lines(profile)]
    refuse_personal({f"line {i}": line for i, line in enumerate(lines, 1)}, names, excused)
    data = ("\n".join(lines) + "\n").encode("utf-8")
    if len(data) > MAX_BYTES:
        raise InvalidProfile("the table is too large to post", found=f"{len(data):,} bytes", needed=f"{MAX_BYTES:,}")
    return data


def markdown_lines(profile: HardwareProfile) -> list[str]:
    """The text without any look at what it holds."""
    lines = [f"{HEAD}{_cell(_machine(profile))}", ""]
    lines += _table(("fact", "value", "source"), _facts(profile))
    if profile.observed:
        rows = [row for run in profile.observed for row in _run_rows(run)]
        lines += ["", *_table(_RUNS, rows), "", *_notes(profile.observed)]
    if profile.kernels:
        shown = profile.kernels[:MAX_KERNELS]
        lines += ["", *_table(_KERNELS, [_kernel_row(one) for one in shown])]
        if len(profile.kernels) > len(shown):
            lines += ["", f"{len(profile.kernels) - len(shown)} more kernel timings are in the JSON profile."]
    day, version = profile.captured_on, _cell(profile.tool.version)
    return [*lines, "", f"captured on {day} by twofold {version}{'' if profile.complete else '; incomplete'}"]


_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "`": "'", "[": "(", "]": ")", "*": "×"}


def _cell(text: str) -> str:
    """Text that cannot leave its cell or become markup."""
    return "".join(_MARKUP.get(char, char) for char in one_line(text, 200)) or "-"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", f"|{'|'.join(' --- ' for _ in columns)}|"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def _value(figure: Figure | None, digits: int = 2) -> str:
    """`12.34 ± 0.21 GB/s`; the ± is the spread as a standard deviation."""
    if figure is None or figure.value is None:
        return "-"
    if not figure.is_number:
        return _cell(", ".join(figure.value) if isinstance(figure.value, list) else str(figure.value))
    text = f"{figure.number:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{figure.number:.0f}"
    if figure.spread is not None:
        text = f"{figure.number:.2f} ± {figure.spread / IQR_SD:.2f}"
    return text


def _with_unit(figure: Figure, digits: int = 2) -> str:
    value = _value(figure, digits)
    return value if value == "-" or not figure.unit else f"{value} {_cell(figure.unit)}"


def _machine(profile: HardwareProfile) -> str:
    parts = [gpu.name for gpu in profile.gpus] + [str(profile.cpu.model.value or "an unknown processor")]
    if profile.ram.total_mib.is_number:
        parts.append(f"{profile.ram.total_mib.number / 1024:.1f} GiB RAM")
    return ", ".join(parts)


def _facts(profile: HardwareProfile) -> list[tuple[str, str, str]]:
    cpu, ram = profile.cpu, profile.ram
    rows = [
        _fact("processor", cpu.model),
        _fact("physical cores", cpu.physical_cores, 0),
        _fact("kernel tiers", cpu.isa_tiers),
        _fact("RAM", ram.total_mib, 0),
        _fact("RAM read, one thread", ram.read_gb_s_one_thread),
        _fact("RAM read, all cores", ram.read_gb_s_all_cores),
    ]
    for index, gpu in enumerate(profile.gpus):
        rows += _gpu_facts(f"GPU {index}", gpu)
    system = "WSL" if profile.os.wsl else profile.os.family
    return [*rows, ("system", f"{system}{' in a container' if profile.os.container else ''}", "reported")]


def _fact(name: str, figure: Figure, digits: int = 2) -> tuple[str, str, str]:
    return name, _with_unit(figure, digits), figure.source


def _gpu_facts(name: str, gpu: Gpu) -> list[tuple[str, str, str]]:
    return [
        (name, _cell(gpu.name), "reported"),
        _fact(f"{name} VRAM", gpu.vram_total_mib, 0),
        _fact(f"{name} driver", gpu.driver),
        _fact(f"{name} power cap", gpu.power_cap_w, 0),
        _fact(f"{name} PCIe generation under load", gpu.pcie.generation_load, 0),
        _fact(f"{name} PCIe width under load", gpu.pcie.width_load, 0),
        _fact(f"{name} host to device", gpu.pcie.h2d_gb_s),
        _fact(f"{name} device to host", gpu.pcie.d2h_gb_s),
    ]


def _run_rows(run: ObservedRun) -> list[tuple[str, ...]]:
    """A row for prompts and one for answers, as far as they were timed."""
    quant = run.quant or f"{run.residual_bits}-bit residual"
    backend = (run.device or "cpu").upper() + (f" {run.isa}" if run.isa else "")
    shape = f"tree of {run.draft_nodes}, {run.draft_depth or '?'} deep" if run.draft_nodes else "none"
    if run.lookup_nodes:
        shape = f"{f'{shape}; ' if run.draft_nodes else ''}up to {run.lookup_nodes} looked up"
    head = (
        _cell(f"{_model(run.model)} {quant}{activation_words(run.activations, ', ')}"),
        f"{run.weights_mib.number:.2f} MiB" if run.weights_mib and run.weights_mib.is_number else "-",
        f"{run.n_parameters / 1e6:.2f} M" if run.n_parameters else "-",
        _cell(backend),
        str(run.threads or "-"),
        _cell(run.kv_type),
        _cell(run.v_type or run.kv_type),
        shape,
    )
    memory = (_value(run.memory_peak_mib, 0), _value(run.memory_planned_mib, 0))
    tests = [] if run.prefill_tok_s is None else [(_test("pp", run.prefill_tokens, run), run.prefill_tok_s)]
    if run.decode_tok_s.is_number or not tests:
        tests.append((_test("tg", run.decode_tokens, run), run.decode_tok_s))
    return [(*head, name, _value(speed), *memory) for name, speed in tests]


def _model(name: str) -> str:
    """`org/name@revision` with the revision as people write it."""
    plain, _, revision = name.partition("@")
    return f"{plain} ({revision[:7]})" if revision else plain


def _test(kind: str, tokens: int | None, run: ObservedRun) -> str:
    """llama-bench's name of the test; what a conversation computed is no fixed test, and says so."""
    name = f"{kind}{tokens}" if tokens else kind
    if run.source in (None, "bench"):
        return name
    return _cell(f"{name} @ d{run.filled_tokens or 0}, {run.source}")


_PEAK = (
    "peak: highest resident set of the process, mapped weights included; plan: what was counted for it beforehand, "
    "with a full context"
)


def _notes(runs: Sequence[ObservedRun]) -> list[str]:
    builds = dict.fromkeys(f"{run.build} ({run.version})" for run in runs if run.build)
    contexts = ", ".join(dict.fromkeys(str(run.context_tokens) for run in runs))
    notes = [f"build: {_cell(', '.join(builds))}"] if builds else []
    return [*notes, f"t/s: median ± spread (interquartile range / {IQR_SD}); context {contexts}", _PEAK]


def _kernel_row(one: KernelTiming) -> tuple[str, ...]:
    cells = (
        one.op + activation_words(one.activations, ", "),
        one.shape.replace("@", " @ "),  # of attention; spaced as a run behind a text is
        str(one.bits),
        str(one.rows),
        one.isa,
        str(one.threads),
    )
    return (*(_cell(cell) for cell in cells), _value(one.latency_us, 1))

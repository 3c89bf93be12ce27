"""`twofold profile`: share what was measured on a machine, and keep what others shared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.format_option import FormatOption
from twofold.cli.output import err, out, print_bytes, print_json
from twofold.cli.probe import BandwidthOption, keep, platform_of, probe_here, table_rows

if TYPE_CHECKING:
    from twofold.profiles.hardware import HardwareProfile, ObservedRun
    from twofold.profiles.store import Stored

app = typer.Typer(no_args_is_help=True, help="Export, import, show and list machine profiles.")


@app.command("export")
def export(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="Where to write it; - is standard output.")] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="NAME|FILE", help="Export a stored profile instead of this machine.")
    ] = None,
    bandwidth: BandwidthOption = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the exact bytes and write nothing.")] = False,
    allow_word: Annotated[
        list[str] | None,
        typer.Option("--allow-word", metavar="WORD", help="A user or host name that is no name in this profile."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE whatever it holds.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="A table in llama-bench's terms, to post in an issue, instead of JSON.")
    ] = False,
    sessions: Annotated[
        bool, typer.Option("--sessions/--no-sessions", help="With what own sessions and kernel timings observed.")
    ] = True,
) -> None:
    """Write a profile that can be posted in public: figures only, nothing that identifies a person or machine."""
    from twofold.profiles.errors import InvalidOption
    from twofold.profiles.export import export_bytes, summary
    from twofold.profiles.markdown import markdown_bytes
    from twofold.profiles.store import find_profile
    from twofold.profiles.text import one_line

    if file is None and not dry_run:
        raise InvalidOption("no file was given", needed="a file, or - for standard output", hint="--dry-run shows it")
    if file not in (None, "-") and not dry_run:
        _refuse_to_replace(Path(str(file)), force, markdown)
    profile = find_profile(source) if source is not None else probe_here(bandwidth)
    if source is None and bandwidth and not dry_run:
        keep(profile)
    if source is None and sessions:
        profile = _with_observations(profile, allow_word or ())
    data = (markdown_bytes if markdown else export_bytes)(profile, allowed=allow_word or ())
    if dry_run or file == "-":
        print_bytes(data)
    else:
        from twofold.profiles.files import write_atomically

        write_atomically(Path(str(file)), data)
    name = "nothing was written; the profile" if dry_run else "the profile" if file == "-" else one_line(str(file))
    err().line(f"{name} {summary(profile)}")


def _with_observations(profile: HardwareProfile, allowed: list[str] | tuple[str, ...]) -> HardwareProfile:
    """`profile` with the kernel timings of this build, and what own sessions on this hardware observed."""
    from twofold.cli.own import kernel_timings, own_runs
    from twofold.profiles.export import with_runs
    from twofold.profiles.own_observed import observed_runs

    runs = observed_runs(own_runs(profile).sessions)
    timed = profile.model_copy(update={"kernels": (*profile.kernels, *kernel_timings())})
    found, left_out = with_runs(timed, runs, allowed=allowed)
    if left_out:
        err().warning(
            f"{left_out} observed run{'s are' if left_out > 1 else ' is'} left out: a text there, such as the model's "
            "name, could identify somebody; --allow-word WORD keeps a word that does not"
        )
    return found


def _refuse_to_replace(path: Path, force: bool, markdown: bool) -> None:
    """An older profile (or an older table) may be replaced, anything else only on request."""
    from twofold.profiles.errors import InvalidOption, InvalidProfile
    from twofold.profiles.importing import read_profile
    from twofold.profiles.markdown import HEAD

    if force or not path.is_file():
        return
    if markdown:
        with path.open("rb") as file:
            if file.read(len(HEAD)) == HEAD.encode():
                return
        raise InvalidOption(
            f"{path} exists and is not such a table: it is not replaced", needed="another name", hint="or pass --force"
        )
    try:
        read_profile(path)
    except InvalidProfile as error:
        raise InvalidOption(
            f"{path} exists and is not a profile: it is not replaced", needed="another name", hint="or pass --force"
        ) from error


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A profile, or a .jsonl of runs; - is standard input.")],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="The name to keep it under.")] = None,
    output_format: FormatOption = "human",
) -> None:
    """Check somebody's profile and keep it for planning (`twofold fit --profile NAME`).

    A .jsonl file holds reported runs, one object a line; they calibrate `twofold fit --engine llama.cpp`.
    """
    if file.endswith(".jsonl"):
        _import_runs(Path(file), name, output_format)
        return
    from twofold.profiles.importing import read_profile
    from twofold.profiles.store import save_imported

    stored = save_imported(read_profile(Path(file)), name)
    if output_format == "json":
        print_json({"schema_version": 1, "name": stored.name, "path": str(stored.path)})
        return
    err().line(f"stored as {stored.name}: {stored.path}")
    err().line(f"hint: twofold fit MODEL --profile {stored.name}")


def _import_runs(path: Path, name: str | None, output_format: str) -> None:
    from twofold.profiles.errors import InvalidOption
    from twofold.profiles.observation_store import all_observations, import_observations, imported_path
    from twofold.profiles.observations import HINT

    if name is not None:
        raise InvalidOption("--name is for profiles; reported runs have ids of their own", hint="leave out --name")
    if not path.is_file():
        raise InvalidOption(f"there is no file {path}", needed="a .jsonl file of reported runs", hint=HINT)
    added, replaced = import_observations(path)
    if output_format == "json":
        document = {"schema_version": 1, "added": added, "replaced": replaced, "path": str(imported_path())}
        print_json(document)
        return
    err().line(f"{added} new runs, {replaced} replaced, {len(all_observations())} known in all: {imported_path()}")
    err().line("hint: twofold fit MODEL --engine llama.cpp --weights-name NAME --card NAME")


@app.command("show")
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME|FILE]", help="Default: this machine, as last probed.")
    ] = None,
    output_format: FormatOption = "human",
) -> None:
    """Show a profile, each value with where it comes from."""
    from twofold.profiles.export import document_of
    from twofold.profiles.store import find_profile, load_own

    profile = find_profile(name) if name is not None else load_own() or probe_here(bandwidth=False)
    if output_format == "json":
        print_json(document_of(profile))
        return
    _show(profile)


def _show(profile: HardwareProfile) -> None:
    from twofold.profiles.activations import activation_words
    from twofold.profiles.text import one_line

    part = "" if profile.complete else ", incomplete"
    captured = f"captured on {profile.captured_on} by twofold {one_line(profile.tool.version)}{part}"
    title = f"{platform_of(profile)}; {captured}"
    rows = [tuple(one_line(cell, 160) for cell in row) for row in table_rows(profile)]
    out().table(title, ("fact", "value", "source", "by"), rows)
    for kernel in profile.kernels:
        figure, where = kernel.latency_us, kernel.isa + activation_words(kernel.activations, ", ")
        out().prose(
            one_line(f"kernel {kernel.op} {kernel.shape} {kernel.bits} bit, {kernel.rows} rows, {where}: ")
            + f" {'unknown' if figure.value is None else figure.value} µs ({figure.source})"
        )
    for run in profile.observed:
        _show_run(run)


def _show_run(run: ObservedRun) -> None:
    from twofold.profiles.activations import activation_words
    from twofold.profiles.text import cache_words, one_line

    speed, peak = run.decode_tok_s, run.memory_peak_mib
    cache = cache_words(run.kv_type, run.v_type)
    what = f"{run.model} {run.residual_bits} bit, context {run.context_tokens}, KV {cache}"
    what += activation_words(run.activations, ", ")
    rate = f"{speed.value} tok/s ({speed.source})" if speed.is_known else f"unknown tok/s ({one_line(speed.by, 120)})"
    memory = f", peak {peak.value} MiB ({peak.source})" if peak.is_known else ""
    out().prose(one_line(f"run {what}: ", 200) + f" {rate}{memory}")


def _cards(profile: HardwareProfile) -> str:
    from twofold.profiles.text import one_line

    names = [one_line(gpu.name, 48) for gpu in profile.gpus]
    counted = dict.fromkeys(names)
    return ", ".join(name if names.count(name) == 1 else f"{names.count(name)} × {name}" for name in counted) or "none"


def _entry(stored: Stored) -> dict[str, object]:
    profile = stored.profile
    if profile is None:
        return {"name": stored.name, "path": str(stored.path), "problem": stored.problem}
    return {
        "name": stored.name,
        "path": str(stored.path),
        "cards": [gpu.name for gpu in profile.gpus],
        "ram_total_mib": profile.ram.total_mib.to_json(),
        "captured_on": profile.captured_on.isoformat(),
        "complete": profile.complete,
        "problem": None,
    }


def list_(output_format: FormatOption = "human") -> None:
    """List the stored profiles."""
    from twofold.profiles.store import stored_profiles
    from twofold.profiles.text import one_line

    found = stored_profiles()
    if output_format == "json":
        print_json({"schema_version": 1, "profiles": [_entry(stored) for stored in found]})
        return
    if not found:
        err().line("no profile is stored")
        err().line("hint: twofold probe, or: twofold profile import FILE")
        return
    rows = []
    for stored in found:
        if stored.profile is None:
            rows.append((stored.name, "unreadable", "", "", one_line(stored.problem or "", 100)))
            continue
        ram = stored.profile.ram.total_mib
        memory = f"{ram.number / 1024:.0f} GiB ({ram.source})" if ram.is_known else "unknown"
        complete = "yes" if stored.profile.complete else "no"
        rows.append((stored.name, _cards(stored.profile), memory, str(stored.profile.captured_on), complete))
    out().table("", ("name", "cards", "RAM", "date", "complete"), rows)


app.command("list")(list_)
app.command("ls", hidden=True)(list_)

"""`allo-tune network MODEL`: a whole network in launches."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from allo_dse.common.quoting import markup, printable

from ..output import AsJson, console, json_only, print_facts, print_json, say_stopped

if TYPE_CHECKING:
    from allo_dse.networks.compose import Composition
    from allo_dse.networks.launches import Launch


def network(  # noqa: PLR0913 (the flags of a command)
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX model, or Python file with a `network`.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Argument of the network, or size; repeatable."),
    ] = None,
    device: Annotated[str, typer.Option(help="NPU or FPGA, by name or device file.")] = "npu2",
    target: Annotated[str | None, typer.Option(help="The tool that builds the designs, such as allo or model.")] = None,
    trials: Annotated[
        int,
        typer.Option(
            min=1, help="Designs to evaluate per operator and number of columns; four times as many on an FPGA."
        ),
    ] = 60,
    cache: Annotated[Path, typer.Option(metavar="DIRECTORY", help="Where designs are kept.")] = Path("runs/.networks"),
    front: Annotated[bool, typer.Option("--front", help="Also the fastest on less of the device.")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="FPGA: most inputs per second, not least latency.")] = False,
    runtime: Annotated[
        str,
        typer.Option(metavar="calls|packets|sequence|launches", help="The host program: the exported one by default."),
    ] = "",
    tolerance: Annotated[
        float | None, typer.Option(help="How far outputs may be from float32, over their largest value.")
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="auto|never", help="Whether the host does operators that no program computes.")
    ] = "auto",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIRECTORY", help="Write designs, and what runs them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Map a whole network: designs for every operator, which of them share a launch, and when each runs.

    Designs of operators are searched once and kept in --cache, for other networks too. `docs/networks.md` says what
    is decided and what a launch costs.

    Examples:

      allo-tune network model.onnx --device npu2
      allo-tune network model.onnx --set batch=1      a size that is left open
      allo-tune network studies/networks/mlp_npu.py --front --json
      allo-tune network model.onnx -o built && python built/run.py
      allo-tune network studies/networks/mlp_npu.py --device u280 --stream
      allo-tune network model.onnx --set element=bf16,f32 --tolerance 0.005
    """
    from allo_dse.common.errors import StudyError
    from allo_dse.device.device import Device
    from allo_dse.networks.accuracy import require_tolerance
    from allo_dse.networks.compose import compose, compositions, require_streams, runtime_of
    from allo_dse.networks.export.export import export, facts_of, keep_page, require_folder
    from allo_dse.networks.fronts import search_fronts
    from allo_dse.networks.onnx.convert import load_network
    from allo_dse.tune.study import parse_settings

    if stream and front:
        raise StudyError("--front and --stream ask for different things", hint="leave one of them out")
    if stream:
        require_streams(Device.of(device))
    runtime = runtime_of(Device.of(device), target, runtime)
    require_tolerance(tolerance)
    if output is not None:
        require_folder(output)
    loaded = load_network(model, parse_settings(settings or []), host)
    with json_only():
        try:
            fronts = search_fronts(
                loaded, device, trials=trials, cache=cache, target=target, host=host,
                narrower=front or runtime == "launches",
                say=lambda line: print(printable(line), file=sys.stderr, flush=True),
            )  # fmt: skip
        except KeyboardInterrupt as stopped:
            raise typer.Exit(say_stopped(stopped, ["allo-tune", *sys.argv[1:]])) from None
        found = (
            compositions(fronts, runtime=runtime, tolerance=tolerance)
            if front
            else [compose(fronts, runtime=runtime, stream=stream, tolerance=tolerance)]
        )
    page = keep_page(found[-1], cache, found)
    if output is not None:
        export(found[-1], output, front=found)
    if as_json:
        print_json({"network": loaded.name, "device": fronts.device.name, "compositions": [facts_of(c) for c in found]})
        return
    for composition in found:
        _show(composition)
    print_facts({"page": f"{page}, or allo-tune dashboard"}, console())


def _show(composition: Composition) -> None:
    from allo_dse.networks.export.export import BATCHES

    to = console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    resources = composition.resources
    types = composition.types if composition.accuracy else {}
    where, kind = "hardware" if resources else "columns", ["type"] if types else []
    for name in ("launch", "operator", *kind, where, "from us", "to us"):
        left = name in {"operator", "type"}
        table.add_column(name, justify="left" if left else "right", no_wrap=name != "operator")
    for launch in composition.launches:
        for row in _rows(launch, types):
            table.add_row(*row)
    to.print(table)
    spent = sorted(composition.time_us.items(), key=lambda one: -one[1])
    more = (us := composition.simulated_us) / composition.latency_us - 1
    facts = {
        "latency": f"{composition.latency_us:,.0f} us on {composition.where}",
        "by cause": ", ".join(f"{name} {us:,.0f}" for name, us in spent if us > 0.5),
        "simulated": "" if resources else f"{us:,.0f} us, with what runs at once simulated together ({more:+.1%})",
        "runtime": "" if resources or not composition.launches else _runtime(composition),
        "driver": composition.overdue,
        "streams": composition.streamed,
        "on the host": _host(composition) if composition.host_us else "",
        "widened": f"narrower in the model: operands of {', '.join(own)}" if (own := composition.widened) else "",
        "rate": ", ".join(f"{composition.inputs_per_s(b):,.1f} inputs/s by {b}" for b in BATCHES),
        "accuracy": composition.in_words if types else "",
        "proved": composition.certificate,
    }
    print_facts({name: text for name, text in facts.items() if text}, to)


def _host(composition: Composition) -> str:
    steps = sorted(composition.host_us.items(), key=lambda one: -one[1])
    total = max(composition.latency_us, 1e-9)
    named = ", ".join(f"{name} {us / total:.1%}" for name, us in steps[:MOST_NAMED])
    more = f" and {len(steps) - MOST_NAMED} more" if len(steps) > MOST_NAMED else ""
    why = "".join(f"; {', '.join(names[:MOST_NAMED])}: {why}" for why, names in composition.why_host.items())
    return f"{1 - composition.device_share:.1%} of the time: {named}{more}{why}"


MOST_NAMED = 8
"""Operators of the host that are named, the longest first."""


def _runtime(composition: Composition) -> str:
    calls = sum(len(launch.runs) for launch in composition.launches)
    alone_us, assumed = composition.called_us("launches"), f"assumed: {WAYS[composition.runtime]}"
    ways = [
        f"{WAYS[way]}: {(us - alone_us) / calls:,.0f} us, {us:,.0f} us in all"
        for way in ("calls", "packets")
        if (us := composition.called_us(way)) > alone_us
    ]
    each = f". These designs in {calls} calls, with the array configured before each by {'; '.join(ways)}"
    return assumed + (each if ways else "")


WAYS = {
    "calls": "another xclbin (--runtime calls, exported)",
    "packets": "control packets (--runtime packets)",
    "sequence": "one ELF with programs one after another in a call (--runtime sequence, exported)",
    "launches": "one ELF with programs side by side in a call (--runtime launches, NOT exported)",
}
"""Ways of configuring the array, by runtime."""


def _rows(launch: Launch, types: Mapping[str, str]) -> list[tuple[str, ...]]:
    return [
        (
            str(launch.number) if run is launch.runs[0] else "",
            markup(f"{run.step.title} ({run.step.work.kind})"),
            *([types[run.step.name]] if types else ()),
            str(run.first_column)
            if run.point.resources
            else f"{run.first_column}-{run.first_column + run.point.columns - 1}",
            f"{run.start_us:,.0f}",
            f"{run.end_us:,.0f}",
        )
        for run in launch.runs
    ]

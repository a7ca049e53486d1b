# SPDX-License-Identifier: Apache-2.0
"""The commands and their options.  Every user's mistake is one message and exit status 2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import benching, compiling, doctoring, inspecting, running, serving
from .report import Report, reporting

app = typer.Typer(
    name="relaxvm",
    help="Compiles machine-learning models to native code and runs them on a register VM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[
    Path, typer.Argument(help="An .onnx file, a compiled .so file or a script (.py).")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
TargetName = Annotated[str, typer.Option(help="What to compile for: 'llvm' is this machine.")]
Threads = Annotated[int, typer.Option(min=0, help="Threads of a run; 0 is all there are.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        import relaxvm

        typer.echo(f"relaxvm {relaxvm.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


@app.command("compile")
def compile_command(
    model: Model,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The library to write; default: the model's name with .so."
        ),
    ] = None,
    target: TargetName = "llvm",
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", help="Shape of an input, instead of the model's: x=1,3,h,w."),
    ] = None,
    json: Json = False,
) -> None:
    """Compiles a model into a shared library."""
    with reporting(Report(json)) as report:
        compiling.run(report, model, output, target, shape or [])


@app.command("run")
def run_command(
    model: Model,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input", "-i", help="Inputs: x=data.npy, or an .npz with one array per input."
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", help="Shape of a random input: x=1,3,48,192."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the outputs into this .npz file.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of random inputs.")] = 0,
    repeat: Annotated[
        int, typer.Option(min=1, help="How often to run; the least time counts.")
    ] = 1,
    num_threads: Threads = 0,
    target: TargetName = "llvm",
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Time, bytes and FLOP of each kernel, of one more run."),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write the calls of one more run, for https://ui.perfetto.dev."),
    ] = None,
    json: Json = False,
) -> None:
    """Runs a model on files or on random inputs."""
    with reporting(Report(json)) as report:
        running.run(
            report,
            model,
            running.Options(
                input or [],
                shape or [],
                output,
                seed,
                repeat,
                num_threads,
                target,
                profile=profile,
                trace=trace,
            ),
        )


@app.command("serve")
def serve_command(
    models: Annotated[
        list[Path], typer.Argument(help="Models to serve, each under the name of its file.")
    ],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any that is free.")] = 9190,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token that clients must show; or RELAXVM_TOKEN is set."),
    ] = None,
    message_mb: Annotated[int, typer.Option(min=1, help="Most megabytes of one message.")] = 256,
    timeout: Annotated[float, typer.Option(min=0.001, help="Most seconds of one call.")] = 300.0,
    allow_upload: Annotated[
        bool,
        typer.Option("--allow-upload", help="Clients may send libraries, whose code runs here."),
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option(help="A PEM file: calls are encrypted; needs --key.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The PEM file of its private key.")] = None,
    target: TargetName = "llvm",
) -> None:
    """Runs models for clients in other processes, until it is interrupted."""
    with reporting(Report(False)) as report:
        serving.run(
            report,
            models,
            serving.Options(
                host,
                port,
                token_file,
                message_mb << 20,
                timeout,
                allow_upload,
                certificate,
                key,
                target,
            ),
        )


@app.command("bench")
def bench_command(
    model: Model,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input", "-i", help="Inputs: x=data.npy, or an .npz with one array per input."
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", help="Shape of a random input: x=1,3,48,192."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of random inputs.")] = 0,
    rounds: Annotated[
        int, typer.Option(min=1, help="How often the engines take turns; the least time counts.")
    ] = 5,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Time that each engine gets, over all rounds.")
    ] = 2.0,
    num_threads: Threads = 0,
    target: TargetName = "llvm",
    profile: Annotated[
        bool, typer.Option("--profile", help="Every kernel beside the limits of this machine.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the profile as a page with a roofline.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write a trace that Perfetto opens.")
    ] = None,
    peer: Annotated[
        bool, typer.Option(help="Run ONNX Runtime in turn, when it is installed.")
    ] = True,
    json: Json = False,
) -> None:
    """Times a model, beside ONNX Runtime where that is installed."""
    with reporting(Report(json)) as report:
        benching.run(
            report,
            model,
            benching.Options(
                input or [],
                shape or [],
                seed,
                rounds,
                seconds,
                num_threads,
                target,
                profile,
                html,
                trace,
                peer,
            ),
        )


@app.command("inspect")
def inspect_command(
    model: Model,
    kernels: Annotated[bool, typer.Option("--kernels", help="Kernels as tensor programs.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="The memory plan.")] = False,
    bytecode: Annotated[bool, typer.Option("--bytecode", help="The bytecode.")] = False,
    script: Annotated[
        bool, typer.Option("--script", help="The imported model as a script.")
    ] = False,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", help="Plan of memory at this shape of an input: x=1,3,48,192."),
    ] = None,
    target: TargetName = "llvm",
    json: Json = False,
) -> None:
    """Shows inputs, outputs, kernels, memory plan, bytecode and script of a model."""
    with reporting(Report(json)) as report:
        inspecting.run(
            report,
            model,
            target,
            inspecting.Parts(kernels=kernels, memory=memory, bytecode=bytecode, script=script),
            shape or [],
        )


@app.command("doctor")
def doctor_command(json: Json = False) -> None:
    """Says what this machine and installation have, and what is missing."""
    with reporting(Report(json)) as report:
        doctoring.run(report)

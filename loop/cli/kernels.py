"""`loop kernels ...`"""

from typing import Annotated, Any

import typer

from loop.cli.options import Device, Json, Seed, Sets, Target, Threads, VariantNames, group, screen_for

kernels_app = group("Build, verify and measure kernels without a session.")


@kernels_app.command("list")
def kernels_list(target: Target = None, json: Json = False) -> None:
    """The variants of the target.

    Example: loop kernels list
    """
    from loop.cli import single_steps as kernels

    raise typer.Exit(kernels.list_variants(target, screen_for(), as_json=json))


@kernels_app.command("show")
def kernels_show(name: str, target: Target = None, json: Json = False) -> None:
    """One variant: its recipe and its workloads.

    Example: loop kernels show cpu
    """
    from loop.cli import single_steps as kernels

    raise typer.Exit(kernels.show_variant(name, target, screen_for(), as_json=json))


@kernels_app.command("header")
def kernels_header() -> None:
    """Path of the C header a kernel includes.

    Example: cp "$(loop kernels header)" .
    """
    from loop.cli import single_steps as kernels

    raise typer.Exit(kernels.header(screen_for()))


def _bench(what: str, variants: list[str] | None, json: bool, **options: Any) -> None:
    from loop.cli import single_steps as kernels

    sets = tuple(options.pop("sets", None) or ())
    request = kernels.BenchRequest(variants=tuple(variants or ()), workloads=sets, json=json, **options)
    raise typer.Exit(kernels.run_bench(what, request, screen_for(json)))


@kernels_app.command("build")
def kernels_build(
    variants: VariantNames = None, target: Target = None, device: Device = "auto", json: Json = False
) -> None:
    """Compile variants into the cache.

    Example: loop kernels build cpu
    """
    _bench("build", variants, json, target=target, device=device)


@kernels_app.command("verify")
def kernels_verify(
    variants: VariantNames = None,
    target: Target = None,
    device: Device = "auto",
    workloads: Sets = None,
    threads: Threads = None,
    seed: Seed = 0,
    emulate: Annotated[
        bool,
        typer.Option("--emulate", help="Run the GPU's variants under the emulator, GPU or not."),
    ] = False,
    sanitize: Annotated[
        bool,
        typer.Option(
            "--sanitize",
            help="On a GPU also compute-sanitizer on a few calls; else emulate with AddressSanitizer and UBSan.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Hold variants against the float64 reference, on all workloads of the target.

    Without a GPU, variants made for one run under the emulator.

    Examples:

      loop kernels verify cpu --seed 7

      loop kernels verify --emulate split_k --workloads edges

      loop kernels verify split_k --sanitize
    """
    options = {"target": target, "device": device, "sets": workloads, "threads": threads, "seed": seed}
    _bench("verify", variants, json, emulate=emulate, sanitize=sanitize, **options)


@kernels_app.command("measure")
def kernels_measure(
    variants: VariantNames = None,
    target: Target = None,
    device: Device = "auto",
    workloads: Sets = None,
    threads: Threads = None,
    seed: Seed = 0,
    rounds: Annotated[int, typer.Option("--rounds", min=2, max=100, help="Sets of fresh processes.")] = 3,
    cold: Annotated[bool, typer.Option("--cold", help="Empty the caches before each timed call.")] = False,
    json: Json = False,
) -> None:
    """Verify variants, then time them against the library, turn about.

    Examples:

      loop kernels measure cpu

      loop kernels measure cpu --workloads large --threads 1 --rounds 7
    """
    options = {"target": target, "device": device, "sets": workloads, "threads": threads, "seed": seed}
    _bench("measure", variants, json, rounds=rounds, cold=cold, **options)


@kernels_app.command("resources")
def kernels_resources(
    variants: VariantNames = None,
    target: Target = None,
    gpu: Annotated[
        str, typer.Option("--gpu", help="A GPU of the target's `devices`; it need not be at hand.")
    ] = "sm_89",
    workloads: Sets = None,
    json: Json = False,
) -> None:
    """What a GPU would do with compiled kernels: registers, spills, shared memory, occupancy, roofline.

    Example: loop kernels resources --gpu sm_89
    """
    _bench("resources", variants, json, target=target, gpu=gpu, sets=workloads)


@kernels_app.command("prove-gate")
def kernels_prove_gate(
    variants: VariantNames = None,
    target: Target = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Put mistakes and cheats into variants, and see that the gate rejects each of them.

    Example: loop kernels prove-gate cpu
    """
    _bench("prove-gate", variants, json, target=target, device=device, threads=threads, seed=seed)

"""Nouns with behaviour: signatures, checks, commands of a session, GPUs and kernels by name."""

from collections.abc import Sequence
from typing import Any

import pytest

from loop.builds.resources import short_name
from loop.machine.machine import facts_of_present_gpu, is_same_gpu_model
from loop.model.measurement import Check, Fault, Layout, VariantChecks
from loop.model.target import Instances
from tests.makers import make_check, make_device, make_session_head

NO_LOAD = "does not load: no such file"
NOT_LOADED = Fault(text=NO_LOAD)


def failures(*checks: Check) -> Sequence[str]:
    """Messages of the failed checks."""
    return VariantChecks(variant="cpu", build_id=None, checks=checks).failure_lines


def unloaded(workload: str, inputs: Layout = "contiguous") -> Check:
    """A check of a variant that did not load."""
    place = workload if inputs == "contiguous" else f"{workload} with {inputs} inputs"
    return make_check(workload, status="refused", message=f"{NO_LOAD} on {place}", inputs=inputs, fault=NOT_LOADED)


def test_a_variant_that_does_not_load_is_told_once() -> None:
    """There is one message for all workloads and layouts, with the count of checks."""
    assert (f"refused: {NO_LOAD} (3 checks)",) == failures(unloaded("a"), unloaded("a", "strided"), unloaded("b"))
    assert (f"refused: {NO_LOAD} on a",) == failures(unloaded("a")), "a single one names its workload"


@pytest.mark.parametrize(("host", "ends"), [("", False), ("l4", True)])
def test_commands_of_a_session_name_the_machine_where_it_ran(host: str, ends: bool) -> None:
    """Commands that repeat or resume it have `--on`; rendering its report has not."""
    head = make_session_head(host=host)
    for command in (head.repeat_command(), head.resume_command):
        assert ends == ("--on l4" in command), command
    assert "--on" not in head.report_command


SPLIT: dict[str, Any] = {
    "symbol": "scale::rows<{T}, {N}>",
    "over": {"T": ["float", "__half"], "N": [16, 32]},
    "file": "rows.cu",
    "line": "template void scale::rows<{T}, {N}>({T} *);",
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void rows<__half, 128, (ns::E)1, false>(Params)", "rows<__half, 128, (ns::E)1, false>"),
        ("(anonymous namespace)::hidden(float*)", "hidden"),
        ("plain_name", "plain_name"),
        ("_Z4rowsPf", "_Z4rowsPf"),
        ("void a::b<void (*)(int), 3>(float*) [clone .cold]", "a::b<void (*)(int), 3>"),
        ("std::vector<int, A<int> > ns::f<float>(int)", "ns::f<float>"),
    ],
)
def test_a_short_name_has_no_return_type_and_no_parameters(name: str, expected: str) -> None:
    """Parentheses within template arguments do not matter."""
    assert expected == short_name(name)


def test_all_combinations_of_instances_are_promised() -> None:
    """Each combination has the line that makes it."""
    promised = tuple(Instances.model_validate(SPLIT).required_symbols())
    assert 4 == len(promised)
    assert ("scale::rows<float, 16>", "template void scale::rows<float, 16>(float *);") == promised[0]
    assert ("scale::rows<__half, 32>", "template void scale::rows<__half, 32>(__half *);") == promised[-1]


H200 = make_device("NVIDIA H200", bytes_per_s=4.8e12, flops_per_s={"float16": 989e12})
LISTED = {"sm_90": H200}


@pytest.mark.parametrize(
    ("same", "name", "driver_name"),
    [
        (True, "NVIDIA H100", "NVIDIA H100 80GB HBM3"),
        (False, "NVIDIA H100", "NVIDIA H100 PCIe"),
        (False, "NVIDIA H100", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"),
        (True, "NVIDIA A100", "NVIDIA A100-SXM4-80GB"),
        (True, "NVIDIA A100 PCIe 80GB", "NVIDIA A100 80GB PCIe"),
        (False, "NVIDIA A100 40GB", "NVIDIA A100-SXM4-80GB"),
        (False, "NVIDIA L4", "NVIDIA L40S"),
        (False, "RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        (False, "Quadro RTX 6000", "NVIDIA RTX 6000 Ada Generation"),
    ],
)
def test_cards_are_told_apart_by_what_their_drivers_call_them(same: bool, name: str, driver_name: str) -> None:
    """Socket and memory size in a name do not matter; any other word does."""
    assert same == is_same_gpu_model(name, driver_name)


@pytest.mark.parametrize(
    "driver",
    [
        make_device("NVIDIA H100 80GB HBM3"),
        make_device("NVIDIA GH200 480GB", bytes_per_s=4.02e12),
        make_device("NVIDIA H200 MIG 1g.18gb", sms=16, bytes_per_s=0.0),
        make_device("NVIDIA H200", sms=16),
    ],
)
def test_a_gpu_that_is_not_the_listed_one_is_told_by_its_driver(driver: Any) -> None:
    """Under its own name, with its own bandwidth, and without the peak that no driver tells."""
    assert driver == facts_of_present_gpu(LISTED, "9.0", driver.name, driver)


def test_the_listed_gpu_has_its_datasheet() -> None:
    """It is found by name and multiprocessors; an unlisted GPU has its driver's facts, or none."""
    assert H200 == facts_of_present_gpu(LISTED, "9.0", "NVIDIA H200", make_device("NVIDIA H200"))
    assert None is facts_of_present_gpu(LISTED, "8.0", "NVIDIA A100-SXM4-80GB", None)
    assert None is facts_of_present_gpu(LISTED, "9.0", "NVIDIA H100 80GB HBM3", None)

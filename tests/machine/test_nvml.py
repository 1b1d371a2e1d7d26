"""Energy by NVML: a library that stands for the driver's tells what it is asked, or that it does not know."""

import subprocess
from pathlib import Path

import pytest

from loop.machine.nvml import Sensors, open_sensors

SOURCE = """
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &SELF; return index; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) { *mw = 212500; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) {
  *mj = 5000000123ULL;
  return ENERGY;
}
"""


def sensors(folder: Path, energy: int) -> Sensors:
    """A GPU whose counter of energy answers with this code."""
    source, library = folder / "nvml.c", folder / "nvml.so"
    source.write_text("static int SELF;\n" + SOURCE.replace("ENERGY", str(energy)))
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    found = open_sensors(0, {}, str(library))
    assert found is not None
    return found


def test_energy_is_read_in_joules(tmp_path: Path) -> None:
    """The driver counts millijoules, in 64 bits: 58 days at 1 kW are more than 32 of them."""
    assert pytest.approx(5000000.123) == sensors(tmp_path, 0).read().energy_j


def test_a_gpu_that_does_not_count_energy_says_nothing_of_it(tmp_path: Path) -> None:
    """NVML_ERROR_NOT_SUPPORTED is no zero; the other sensors are read all the same."""
    state = sensors(tmp_path, 3).read()
    assert (None, 212.5, None) == (state.energy_j, state.power_w, state.sm_clock_mhz)

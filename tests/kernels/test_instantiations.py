"""The file of explicit instantiations serves programs of several translation units."""

import subprocess
from pathlib import Path

import pytest

from loop.base.places import include_folder, shipped
from loop.library.definitions import read_file
from loop.model.target import Target

USER = """
#include "small.cuh"
#include "tensor_core.cuh"

extern template attention::Error attention::tensor_core<__half, 64>(const attention::Problem &, cudaStream_t);
extern template attention::Error attention::small<__nv_bfloat16, 128>(const attention::Problem &, cudaStream_t);

int main(int count, char **) {
  const attention::Problem problem = {};
  if (count < 2) return 0;
  const int first = attention::tensor_core<__half, 64>(problem, nullptr);
  return first + attention::small<__nv_bfloat16, 128>(problem, nullptr);
}
"""


@pytest.mark.slow
def test_a_second_translation_unit_links_with_it(tmp_path: Path) -> None:
    """It declares the instances and compiles none of them; without the file they would be undefined."""
    cuda = shipped("kernels/attention") / "cuda"
    (tmp_path / "user.cu").write_text(USER)
    tuned = read_file(cuda.parent / "target.yaml", Target).value.tuning_macros("sm_89")
    flags = ["-std=c++17", "-O0", "-DLOOP_EMULATE", *tuned, "-pthread"]
    base = ["g++", "-x", "c++", *flags, f"-I{include_folder()}", f"-I{cuda}", '-DLOOP_BUILD_ID="test"']
    for source in (cuda / "instantiations.cu", tmp_path / "user.cu"):
        place = tmp_path / f"{source.stem}.o"
        subprocess.run([*base, "-c", str(source), "-o", str(place)], check=True, capture_output=True, timeout=120)
    link = ["g++", "-pthread", str(tmp_path / "user.o"), "-o", str(tmp_path / "user")]
    alone = subprocess.run(link, check=False, capture_output=True, text=True, timeout=60)
    assert "undefined reference" in alone.stderr
    subprocess.run([*link, str(tmp_path / "instantiations.o")], check=True, capture_output=True, timeout=60)
    assert 0 == subprocess.run([str(tmp_path / "user")], check=False, timeout=20).returncode

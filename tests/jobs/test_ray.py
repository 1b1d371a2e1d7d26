"""Executors of clusters, Ray and Slurm: limits, requeues, lost nodes cost a retry, never a job."""

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import loop
from loop.base.errors import WorkFailed
from loop.base.processes import run_to_end
from loop.jobs import executor, slurm
from loop.jobs import ray as on_ray
from loop.jobs.folder import MOST_TRIES, Job, JobFolder, content_hashes, create_job
from tests.jobs.small import Make, make
from tests.jobs.small_ray import COMMAND, run_small
from tests.targets import compiled, write_target

__all__ = ["make"]
NO_RAY = "needs the package `ray`: pip install 'kernel-loop[ray]'"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Four nodes on this machine, of one processor each; their jobs are small."""
    pytest.importorskip("ray", reason=NO_RAY)
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("LOOP_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(on_ray, "run_on_node", run_small)
    variables = {COMMAND: f"{sys.executable} -S -P {tmp_path / 'loop.py'}", **on_ray.task_variables()}
    monkeypatch.setattr(on_ray, "task_variables", lambda: variables)
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(4):
        nodes.add_node(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    yield nodes
    import ray

    ray.shutdown()
    nodes.shutdown()


def work(jobs: list[JobFolder], cluster: Any, kills: int) -> None:
    """Run all jobs while nodes die and new ones join."""
    slots, begun = executor.load_executor("ray").slots(4), time.monotonic()
    chosen = random.Random(7)
    try:
        for _ in executor.run_all(slots, jobs):
            if kills and time.monotonic() - begun > 2:
                nodes = sorted(cluster.worker_nodes, key=lambda node: node.unique_id)
                cluster.remove_node(chosen.choice(nodes), allow_graceful=False)
                cluster.add_node(num_cpus=1)
                begun, kills = time.monotonic(), kills - 1
    finally:
        executor.close_slots(slots)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_job_is_lost_when_nodes_die(make: Make, cluster: Any) -> None:
    """200 jobs, three nodes killed: each has one result, that of its own words."""
    jobs = [make(f"nap {number}") for number in range(200)]
    work(jobs, cluster, 3)
    assert {"done"} == {job.state for job in jobs}
    assert [f"nap {number}" for number in range(200)] == [job.read_answer()["said"] for job in jobs]
    assert 3 >= max(job.tries for job in jobs)


@pytest.mark.slow
def test_a_node_allows_the_sources_that_were_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender's user allowed them; the node has no user to ask."""
    monkeypatch.setenv("LOOP_STATE", str(tmp_path / "sender"))
    source = tmp_path / "source"
    write_target(source, {"right": compiled("right")})
    paths = sorted(path for path in source.rglob("*") if path.is_file())
    words = ("run", "step", "kernel.sources", "--json", "--device=cpu", "--target=.", "--variant=right")
    job = Job(id="a1", words=words, title="sources", files=content_hashes(source, paths))
    sent = create_job(job, source, paths)
    monkeypatch.setenv("LOOP_STATE", str(tmp_path / "state"))
    on_ray.unpack(on_ray.run_on_node(loop.__version__, job.id, on_ray.pack(sent.path), gpu=False), sent.path)
    assert ("passed", 0) == (sent.read_answer()["steps"][0]["status"], sent.exit_code)
    assert [] == [*(tmp_path / "state" / "jobs").iterdir()]


def test_a_job_has_the_cores_of_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs of one node have other cores; without a number of its GPU a job has all."""
    gpu_ids = ["1"]
    context = SimpleNamespace(get_node_id=lambda: "b", get_accelerator_ids=lambda: {"GPU": gpu_ids})
    nodes = [{"NodeID": "a", "Resources": {}}, {"NodeID": "b", "Resources": {"GPU": 2.0}}]
    stub = SimpleNamespace(get_runtime_context=lambda: context, nodes=lambda: nodes)
    monkeypatch.setitem(sys.modules, "ray", stub)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    shares = [on_ray.own_cores()]
    gpu_ids[0] = "0"
    shares.append(on_ray.own_cores())
    assert [4, 4] == [len(set(share)) for share in shares]
    assert not set(shares[0]) & set(shares[1])
    gpu_ids[0] = "GPU-d5ca6fba"
    assert [] == on_ray.own_cores()


class Mixed:
    """A cluster whose nodes have GPUs of two kinds, and which loses all of them once a task waits."""

    def __init__(self) -> None:
        self.resources = {"CPU": 3.0, "GPU": 3.0, "accelerator_type:L4": 2.0, "accelerator_type:A100": 1.0}
        self.cluster_resources = lambda: self.resources
        self.cancel = lambda task: None
        self.options: dict[str, Any] = {}

    def remote(self, function: Any) -> Any:
        """A task of which only the options are noted."""
        task = SimpleNamespace(remote=lambda *arguments, **fields: "task")
        return SimpleNamespace(options=lambda **options: self.options.update(options) or task)

    def wait(self, tasks: list[str], **_: Any) -> tuple[list[str], list[str]]:
        """Report that no task has ended."""
        self.resources = {"CPU": 3.0}
        return [], tasks


def test_jobs_do_not_wait_for_ever_for_nodes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs of the commoner kind are used; without nodes, a new one has a limited time to join."""
    monkeypatch.setattr(on_ray, "NO_NODE_LIMIT_S", -1.0)
    slot = on_ray.RaySlot(cluster := Mixed())
    with pytest.raises(WorkFailed, match="no node of the Ray cluster is left"):
        slot.run_in_slot(make("go", needs_gpu=True))
    assert {"accelerator_type:L4": 0.001} == cluster.options["resources"]
    assert slot.trouble is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_job_that_is_cancelled_ends(make: Make, cluster: Any) -> None:
    """Its command is told to end; other jobs continue."""
    jobs, slots = [make("sleep"), make("nap 1")], executor.load_executor("ray").slots(2)
    for _ in executor.run_all(slots, jobs):
        if "done" == jobs[1].state:
            jobs[0].cancel()
    executor.close_slots(slots)
    assert ["cancelled", "done"] == [job.state for job in jobs]


SCRIPT = str(Path(__file__).with_name("slurm.sh"))
MISSING = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]
needs_slurm = pytest.mark.skipif(
    bool(MISSING) or os.geteuid() != 0, reason="needs root, and Debian's slurm-wlm and munge"
)


def runs(command: tuple[str, ...]) -> tuple[str, ...]:
    """The setup of a task in which a small program replaces `loop`."""
    code = "import sys; from pathlib import Path; from loop.jobs import executor; "
    code += f"executor.COMMAND_DYING_WITH_PARENT = {command!r}; "
    return sys.executable, "-c", f"{code}executor.run_job(executor.JobFolder(Path(sys.argv[1])))"


@pytest.fixture
def slurm_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster of this machine; its jobs are small."""
    folder = tmp_path / "slurm"
    subprocess.run(["sh", SCRIPT, "start", str(folder)], check=True, timeout=60)
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    monkeypatch.setenv("LOOP_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(slurm, "RUN_COMMAND", runs((sys.executable, "-S", "-P", str(tmp_path / "loop.py"))))
    yield
    subprocess.run(["sh", SCRIPT, "stop", str(folder)], check=True, timeout=60)


def all_done(jobs: list[JobFolder]) -> None:
    """All of them done by Slurm, two at a time."""
    slots = executor.load_executor("slurm").slots(2)
    run_to_end(executor.run_all(slots, jobs))
    executor.close_slots(slots)


@needs_slurm
@pytest.mark.slow
def test_jobs_of_slurm_end_at_their_limits(make: Make, slurm_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten jobs, a hanging one ends at its limit; one that kills its runner is started three times."""
    monkeypatch.setattr(slurm, "EXIT_CODE_WAIT_S", 1.0)
    jobs = [make(f"nap {number}") for number in range(10)]
    all_done(jobs)
    assert [("done", f"nap {n}", 1) for n in range(10)] == [
        (job.state, job.read_answer()["said"], job.tries) for job in jobs
    ]
    hung, dies = make("sleep", ttl_s=0.5), make("die")
    all_done([hung, dies])
    assert [("failed", 124), ("failed", -9)] == [(job.state, job.exit_code) for job in (hung, dies)]
    assert MOST_TRIES == hung.tries


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("sleep 0.3", "its job of Slurm ended and never began it: do the nodes share "),
        ("echo 'sbatch: error: invalid partition' >&2; exit 1", "sbatch: error: invalid partition"),
    ],
)
def test_a_job_that_slurm_drops_or_refuses_is_lost(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    """It counts as lost only once `sbatch` has ended."""
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(slurm, "EXIT_CODE_WAIT_S", 0.01)
    began = time.monotonic()
    with pytest.raises(WorkFailed, match=says):
        slurm.slots(1)[0].run_in_slot(make("go"))
    assert "sleep" not in script or time.monotonic() - began > 0.3


@needs_slurm
@pytest.mark.slow
def test_a_task_that_vanishes_or_is_requeued_costs_a_retry(make: Make, slurm_here: None) -> None:
    """A task that is killed is begun again by us, one that is requeued by Slurm; a cancelled one is not."""
    jobs = [make(f"once {word}") for word in ("killed", "requeued", "cancelled")]
    slots = executor.load_executor("slurm").slots(2)
    working = executor.run_all(slots, jobs)
    end = time.monotonic() + 60
    while {"running"} != {job.state for job in jobs[:2]}:
        next(working)
        assert time.monotonic() < end
    subprocess.run(["scancel", "--signal=KILL", "--full", f"--name=loop-{jobs[0].id}"], check=True)
    named = ["squeue", "--noheader", f"--name=loop-{jobs[1].id}", "--format=%i"]
    listed = subprocess.run(named, check=True, capture_output=True, text=True).stdout
    subprocess.run(["scontrol", "requeue", listed.strip()], check=True)
    jobs[2].cancel()
    for job in jobs[:2]:
        (job.path / "src" / "go").touch()
    run_to_end(working)
    executor.close_slots(slots)
    assert ["done", "done", "cancelled"] == [job.state for job in jobs]
    assert [2, 2] == [job.tries for job in jobs[:2]]

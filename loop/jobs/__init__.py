"""Jobs: a `loop` command with its input files, in a folder that any machine with `loop` can run.

Begin with `folder`: the files in a job's folder, the states of a job, and which devices are
comparable. `executor.run_job` runs one job in its folder (`loop job run DIR`). `Executor` runs many
jobs, in slots that `local`, `ssh`, `ray` and `slurm` make. `remote` reads `hosts.yaml`, connects to a
machine and installs `loop` there; `ssh` runs jobs on it.

A job knows no feature of `loop`: its input is a command line, its answer is the printed output.
"""

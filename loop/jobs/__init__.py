"""Jobs: a `loop` command with its input files, in a folder that any machine with `loop` can run.

Begin with `folder`: the files in a job's folder, and the states of a job.
`executor.run_job` runs one job in its folder (`loop job run DIR`). `executor.run_all` runs many, in
slots of `local`, `ssh`, `ray` or `slurm`. `ssh` also installs `loop` on a machine of `hosts.yaml`.

A job knows no feature of `loop`: its input is a command line, its answer is the printed output.
"""

"""Jobs: a `loop` command with the files it works on, as a folder that any machine with `loop` can run.

Begin with `folder`, which says what lies in a job's folder, what its state is, and which devices may be compared.
`executor.run` runs one wherever it lies; `loop job run DIR` is its door. `Executor` runs many, in slots that
`local`, `ssh`, `ray` and `slurm` make. `hosts` names machines that are reached by ssh, `remote` connects to one
and installs `loop` there, `there` is the jobs on it.

A job knows no feature: it is words after `loop`, and its answer is what that command prints.
"""

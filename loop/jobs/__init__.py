"""Jobs: a `loop` command with the files it works on, as a folder that any machine with `loop` can run.

Begin with `folder`, which says what lies in a job's folder and what its state is. `running` runs one wherever it
lies; `loop job run DIR` is its door. `executor` says what runs many: `local`, `ssh`, `ray` and `slurm` are a file
each. `groups` says which devices may be compared. `hosts`, `remote`, `there` and `setup` are about machines that
are reached by ssh.

`hosts`, `remote` and `setup` are machines that are reached by ssh, `there` is the jobs on one of them. `ssh`, the
executor, spreads jobs over several. `sent` is a single command that was sent away, as by `--on`.

A job knows no feature: it is words after `loop`, and its answer is what that command prints.
"""

"""`loop init`: a first target of a function, a module, a kernel or a program, that can be judged without an edit.

Begin with `command`. Its `program` tries the function in a process of its own, which imports torch. `slots` holds
what each parameter could be given. `trial` calls the function so. `facts` says what it is then judged on. `texts`
are the files in Python. A kernel in C is read as text and gets an entry (`kernel`). Last, `manifest` writes
target.yaml.
"""

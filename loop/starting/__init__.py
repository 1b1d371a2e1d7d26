"""`loop init`: a first target of a function, a module, a kernel or a program, that can be judged without an edit.

Begin with `command`. It starts `program` in a process of its own, which imports torch and the user's module and
tries the function. `slots` holds what each parameter could be given, by annotations, names and defaults; `facts`
calls the function so, and says what it is then judged on. `texts` are the files in Python. A kernel in C is read
as text (`c_text`) and gets an entry (`source`). `manifest` chooses sizes and writes target.yaml.
"""

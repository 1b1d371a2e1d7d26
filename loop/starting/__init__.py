"""`loop init`: a first target of a function, a module, a kernel or a program, that can be judged without an edit.

Begin with `command`. Its `program` tries the function in a process of its own, which imports torch. `slots` holds
what each parameter could be given, by annotations, names and defaults. `trial` calls the function so. `sizes`
and `facts` say what it is then judged on. `texts` are the files in Python. A kernel in C is read as text
(`c_text`), and gets an entry (`source`, `glue`). `manifest` writes target.yaml.
"""

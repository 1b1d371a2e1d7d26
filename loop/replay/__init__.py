"""A session's recipe: a script that does again what it judged, and says whether that is the same.

Begin in `recipe`: it writes `recipe.sh` from a session's records and the lines that its compilers ran. The numbers
that the script expects are `expectations`, a line of JSON each. A replay ends with
`command`, which holds what was found against them; `comparing` decides.
"""

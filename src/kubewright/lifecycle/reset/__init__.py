"""`reset`: undo the changes of init or join on a machine, and nothing else.

Every step is tried; failures are reported at the end.
"""

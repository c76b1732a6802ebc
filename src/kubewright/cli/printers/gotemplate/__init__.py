"""The core of Go's `text/template`, for `-o go-template=…`: its whole language except methods and calling functions.

`lexing` produces tokens, `parsing` a tree of `nodes`, `executing` runs it with the functions of `functions`.
"""

"""The useful core of Go's `text/template`, for `-o go-template=…`: everything of its language except methods and calling functions.

`lexing` makes tokens, `parsing` a tree of `nodes`, `executing` runs it with the functions of `functions`.
"""

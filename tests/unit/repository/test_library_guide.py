"""The examples of the library guide that need no cluster print what the page shows."""

from __future__ import annotations

from guide import examples, run


def test_every_example_prints_what_the_page_shows():
    names: dict[str, object] = {}
    shown = [example for example in examples("library.md") if not example.needs_cluster]
    assert len(shown) == 3
    for example in shown:
        printed = run(example, names)
        assert printed.split() == example.output.split(), example.place
        assert printed

"""Reads documents from text: splits it as apimachinery's YAMLReader does, and composes each document from PyYAML's events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import DocumentError
from kubewright.base.patterns import Pattern
from kubewright.base.yaml.documents import MAX_BYTES, Document, line_of

if TYPE_CHECKING:
    import yaml


_SEPARATOR: Final = "---"
_MAX_DOCUMENTS: Final = 10_000
_MAX_DIRECTIVES: Final = 100
"""A limit, because libyaml compares each tag directive with all earlier ones. No Kubernetes tool writes any."""
_DIRECTIVE: Final = Pattern(r"(?m)^%")
_BLANKS: Final = Pattern(r"\s+")


def load(text: str | bytes, *, source: str = "") -> object:
    """Read the value of a text's only document; None if it is empty. Raises DocumentError like `load_one`."""
    return load_one(text, source=source).value


def load_one(text: str | bytes, *, source: str = "") -> Document:
    """Read a text's only document; an empty text has one without a value.

    Raises DocumentError if the text is not YAML, too large or nested too deeply, repeats a key, or has more than one
    document.
    """
    documents = load_all(text, source=source)
    if len(documents) > 1:
        raise DocumentError(f"{_name(source)} contains {len(documents)} documents where one is expected", remedy="split it")
    for document in documents:
        for path in document.duplicates[:1]:
            raise DocumentError(f"{_name(source)}: key {path} is given twice", detail=document.where(path), remedy="remove one of them")
    return documents[0] if documents else Document(value=None, source=source)


def load_all(text: str | bytes, *, source: str = "", recognise_json: bool = False) -> list[Document]:
    """Read all documents of a text, in order. An empty text has none.

    `recognise_json`: a document that begins with a brace must be JSON, as for those decoders of apimachinery that
    accept both formats (`IsJSONBuffer`): no comments, no comma at the end of a list, nothing after the closing brace.

    Documents are separated by lines that start with `---`. One without content (only spaces or comments, or nothing
    between two separators) has the value None; a separator alone at the very start or end creates no document. Text
    after a line `...` is ignored up to the next separator. CRLF and a byte order mark at the start are accepted.
    Raises DocumentError with source and line.
    """
    chunks = list(_chunks(_decode(text, source), source))
    if len(chunks) > _MAX_DOCUMENTS:
        raise DocumentError(f"{_name(source)} holds more than {_MAX_DOCUMENTS} documents", remedy="split it")
    return [_document(chunk, first_line, source, is_json=recognise_json and chunk.lstrip()[:1] == "{") for first_line, chunk in chunks]


def _name(source: str) -> str:
    return source or "the document"


def _decode(text: str | bytes, source: str) -> str:
    if len(text) > MAX_BYTES:
        limit = f"{MAX_BYTES // (1024 * 1024)} MiB"
        raise DocumentError(f"{_name(source)} is larger than {limit}", remedy="use a smaller file; a configuration has a few kB")
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        decoded.encode()
    except UnicodeError as error:
        place = f"at byte {error.start}" if isinstance(error, UnicodeDecodeError) else "it holds half a surrogate pair"
        raise DocumentError(f"{_name(source)} is not UTF-8 text", detail=place, remedy="save it as UTF-8") from None
    return decoded.removeprefix("\ufeff").replace("\r\n", "\n")


def _chunks(text: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield the number of the first line and the text of each document. A separator before any content belongs to what follows it."""
    lines = text.removesuffix("\n").split("\n") if text else []
    kept: list[str] = []
    first = 1
    for number, line in enumerate(lines, start=1):
        if line.startswith(_SEPARATOR):
            rest = line.removeprefix(_SEPARATOR).strip()
            if rest and not rest.startswith("#"):
                problem = f"{_name(source)}: there is text after the document separator"
                raise DocumentError(problem, detail=f"line {number}", remedy="put it on the next line")
            if kept:
                yield first, "\n".join([*kept, ""])
                kept, first = [], number + 1
                continue
        kept.append(line)
    if kept:
        yield first, "\n".join([*kept, ""])


def _document(text: str, first_line: int, source: str, *, is_json: bool) -> Document:
    import yaml

    from kubewright.base.yaml.composer import Composer

    if len(_DIRECTIVE.findall(text)) > _MAX_DIRECTIVES:
        raise DocumentError(f"{_name(source)} is not YAML", detail=f"a document has more than {_MAX_DIRECTIVES} lines with directives")
    composer = Composer(first_line=first_line, source=source, is_json=is_json)
    try:
        value = composer.compose(_events(text))
    except yaml.YAMLError as error:
        raise _not_yaml(error, first_line, source) from None
    if is_json:
        _require_json(text, first_line, source)
    line = first_line if composer.at is None else line_of(composer.at)
    return Document(value=value, source=source, line=line, duplicates=tuple(composer.duplicates), places=composer.places)


def _require_json(text: str, first_line: int, source: str) -> None:
    """Require that a text, already valid YAML, is also JSON. Raises DocumentError."""
    import json

    try:
        json.loads(text, parse_int=len, parse_float=len, parse_constant=_refuse)  # the numbers, of any length, were read already
    except json.JSONDecodeError as error:
        where, problem = f"line {first_line + error.lineno - 1}, column {error.colno}: ", error.msg[:1].lower() + error.msg[1:]
    except ValueError as error:
        where, problem = "", str(error)
    else:
        return
    remedy = "correct it, or write it as YAML: what begins with a brace is read as JSON, as kubeadm does"
    raise DocumentError(f"{_name(source)} is not JSON", detail=where + problem, remedy=remedy)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _events(text: str) -> Iterator[yaml.Event]:
    """Yield the events of a text's first document, including its end; nothing for a text without content."""
    import yaml

    loader = yaml.CLoader(text)
    try:
        while True:
            event = loader.get_event()
            if event is None or isinstance(event, yaml.StreamEndEvent):
                return
            yield event
            if isinstance(event, yaml.DocumentEndEvent):
                return
    finally:
        loader.dispose()


def _not_yaml(error: yaml.YAMLError, first_line: int, source: str) -> DocumentError:
    """Turn PyYAML's error into ours. Only the parser's own message is kept: a snippet of the text could show a secret."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
    place = f"line {first_line + mark.line}, column {mark.column + 1}: " if mark is not None else ""
    return DocumentError(f"{_name(source)} is not YAML", detail=place + _BLANKS.sub(" ", str(problem)))

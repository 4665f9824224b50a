"""The generated files about the contracts. The catalogue has a page for each contract, and opens from disk.

The registry and the models are the only inputs. `make docs` writes the files into the documentation site.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from prismline_cli.printed import OUTPUT_MODELS
from prismline_contracts.base import KNOWN_VALUES, TIMESTAMP_PATTERN
from prismline_contracts.chunk_input import CHUNK_ARRAYS
from prismline_contracts.decomposition import COLUMNS
from prismline_contracts.summaries import FILE, NEXT, Kind, Summary
from prismline_contracts_tool.asyncapi import document
from prismline_contracts_tool.registry import REGISTRY, Entry, read_example, read_registry
from prismline_contracts_tool.release import CHUNK_INPUT, PARQUET, package_version
from prismline_contracts_tool.schemas import MODELS, OUTPUTS_FOLDER, output_schema_of, schema_of

#: The folder of the pages, and the name of the AsyncAPI document.
CATALOGUE, ASYNCAPI = "catalogue", "asyncapi.json"
#: The headings of the lists in the index, by kind.
HEADINGS = {
    Kind.MESSAGE: "Messages",
    Kind.ITEM: "Items of tables",
    Kind.OBJECT: "Objects in the bucket",
    Kind.MANIFEST: "Manifests",
}
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, code, pre { overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid #8884; }
pre { overflow: auto; padding: 1rem; background: #8881; }
code { font-size: .92em; }
dt { font-weight: 600; }
dd { margin: 0 0 .5rem; }
"""


def pages(registry: Mapping[str, Entry], folder: Path) -> dict[str, str]:
    """The pages by file name. folder: the registry's, which holds the examples."""
    return {"index.html": _index(registry)} | {
        f"{name}.html": _page(name, entry, read_example(folder, name)) for name, entry in registry.items()
    }


def summaries(registry: Mapping[str, Entry]) -> str:
    """The content of the package's file of summaries, as JSON."""
    listed = [
        Summary(
            name=name,
            kind=entry.kind,
            says=_summary(name),
            owner=entry.owner,
            producers=list(entry.producers),
            consumers=list(entry.consumers),
            channel=entry.channel,
            history=entry.history,
        )
        for name, entry in registry.items()
    ]
    return json.dumps([each.model_dump(mode="json", exclude_none=True) for each in listed], indent=1) + "\n"


def write_summaries(contracts: Path) -> None:
    """Write the summaries into the package, in a checkout's folder `contracts`."""
    (contracts / "src/prismline_contracts" / FILE).write_text(summaries(read_registry(contracts / REGISTRY)))


def files(contracts: Path) -> dict[str, str]:
    """All generated files by their paths: the catalogue, the AsyncAPI document, the schemas of what commands print.

    contracts: a checkout's folder `contracts`.
    """
    registry = read_registry(contracts / REGISTRY)
    described = document(registry, contracts / REGISTRY, package_version(contracts))
    return (
        {f"{CATALOGUE}/{name}": page for name, page in pages(registry, contracts / REGISTRY).items()}
        | {ASYNCAPI: json.dumps(described, indent=1) + "\n"}
        | {
            f"{OUTPUTS_FOLDER}/{name}.json": json.dumps(output_schema_of(name), indent=2) + "\n"
            for name in OUTPUT_MODELS
        }
    )


def write_pages(contracts: Path, folder: Path) -> None:
    """Write the generated files below `folder`."""
    for name, text in files(contracts).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


#: Summaries of the contracts of files that hold no JSON.
FILES = {
    CHUNK_INPUT: "The arrays of a chunk's input, an `.npz` file.",
    PARQUET: "The columns and the metadata of the Parquet output.",
}

# ---- pages


def _html(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def _index(registry: Mapping[str, Entry]) -> str:
    body = "<h1>Contracts of Prismline</h1>\n"
    for kind, heading in HEADINGS.items():
        entries = [(name, entry) for name, entry in registry.items() if entry.kind is kind]
        body += f"<h2>{heading}</h2>\n"
        body += _table(("contract", "what it says", "who writes", "who reads"), [_index_row(*each) for each in entries])
    return _html("Contracts of Prismline", body)


def _index_row(name: str, entry: Entry) -> tuple[str, ...]:
    link = f'<a href="{name}.html"><code>{name}</code></a>'
    return link, escape(_summary(name)), escape(", ".join(entry.producers)), escape(", ".join(entry.consumers))


def _page(name: str, entry: Entry, example: Any) -> str:
    facts = {
        "kind": entry.kind.value,
        "owner": entry.owner,
        "who sends" if entry.kind is Kind.MESSAGE else "who writes": ", ".join(entry.producers),
        "who reads": ", ".join(entry.consumers),
    }
    if entry.channel:
        facts["channel"] = "the bus" if entry.channel == "bus" else f"the queue {entry.channel}"
    body = f'<p><a href="index.html">Contracts</a></p>\n<h1>{name}</h1>\n<p>{escape(_summary(name))}</p>\n<dl>\n'
    body += "".join(f"<dt>{word}</dt><dd>{escape(fact)}</dd>\n" for word, fact in facts.items()) + "</dl>\n"
    body += "<h2>Fields</h2>\n" + (_fields(name) if name in MODELS else _fields_of_file(name))
    if example is not None:
        body += f"<h2>Example</h2>\n<pre>{escape(json.dumps(example, indent=2, ensure_ascii=False))}</pre>\n"
    body += "<h2>History</h2>\n"
    releases = {"not released yet" if release == NEXT else release: what for release, what in entry.history.items()}
    body += _table(("release", "what changed"), [(release, _marked(what)) for release, what in releases.items()])
    return _html(f"{name} - contracts of Prismline", body)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}</table>\n"


def _summary(name: str) -> str:
    if name not in MODELS:
        return FILES[name]
    return (MODELS[name].__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")


def _marked(text: str) -> str:
    """Text with `code` as HTML."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


# ---- fields


def _fields(name: str) -> str:
    schema, descriptions = schema_of(name), comments(MODELS[name])
    parts = {None: schema} | schema.get("$defs", {})
    text = ""
    for part, each in parts.items():
        if "properties" not in each:
            text += f'<h3 id="{part}">{part}</h3>\n<p>{_kind(each)}</p>\n' if part is not None else ""
            continue
        if part is not None:
            text += f'<h3 id="{part}">{part}</h3>\n'
        required = each.get("required", ())
        rows = [
            (
                f"<code>{field}</code>",
                _kind(shape),
                "yes" if field in required else "no",
                _marked(shape.get("description") or (descriptions.get(field, "") if part is None else "")),
            )
            for field, shape in each["properties"].items()
        ]
        text += _table(("field", "type", "always there", "meaning"), rows)
    return text


def _fields_of_file(name: str) -> str:
    """The table of a file's arrays (`.npz`) or columns (Parquet)."""
    if name == CHUNK_INPUT:
        found = [
            (
                each.name,
                f"{' or '.join(each.types)} {' or '.join(each.shapes)}",
                each.unit,
                each.required,
                each.description,
            )
            for each in CHUNK_ARRAYS
        ]
    else:
        found = [(each.name, each.type.value, each.unit, each.since == 1, each.description) for each in COLUMNS]
    rows = [
        (f"<code>{field}</code>", escape(kind), escape(unit), "yes" if always else "no", _marked(meaning))
        for field, kind, unit, always, meaning in found
    ]
    return _table(("field", "type", "unit", "always there", "meaning"), rows)


def _kind(shape: Mapping[str, Any]) -> str:
    """A field's type in a few words, as HTML."""
    return " or ".join(dict.fromkeys(_kinds(shape)))


def _kinds(shape: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in shape:
        part = shape["$ref"].rpartition("/")[2]
        yield f'<a href="#{part}">{part}</a>'
    elif "anyOf" in shape or "oneOf" in shape:
        for each in shape.get("anyOf") or shape["oneOf"]:
            yield from _kinds(each)
    elif "const" in shape or "enum" in shape or KNOWN_VALUES in shape:
        values = [shape["const"]] if "const" in shape else shape.get("enum") or shape[KNOWN_VALUES]
        listed = ", ".join(f"<code>{escape(json.dumps(each))}</code>" for each in values)
        yield f"{listed} and later values" if KNOWN_VALUES in shape else listed
    elif shape.get("pattern") == TIMESTAMP_PATTERN:
        yield "timestamp"
    elif shape.get("type") == "array":
        yield f"list of {_kind(shape.get('items', {}))}"
    else:
        limits = [
            f"{word} {escape(str(shape[key]))}"
            for key, word in (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"))
            if key in shape
        ]
        pattern = [f"like <code>{escape(shape['pattern'])}</code>"] if "pattern" in shape else []
        yield " ".join([str(shape.get("type", "anything")), *limits, *pattern])


def comments(model: type[BaseModel]) -> dict[str, str]:
    """The comments above the fields of a model, by the fields' names on the wire."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base is BaseModel or not issubclass(base, BaseModel):
            continue
        lines: list[str] = []
        for line in inspect.getsource(base).splitlines():
            if comment := re.match(r"    #: ?(.*)", line):
                lines.append(comment[1])
                continue
            if (field := re.match(r"    (\w+): ", line)) and field[1] in model.model_fields:
                found[model.model_fields[field[1]].alias or field[1]] = " ".join(lines)
            lines = []
    return found

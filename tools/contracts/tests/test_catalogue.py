"""The AsyncAPI document and the catalogue agree with the registry and the models, and are valid and readable."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from prismline_contracts.chunk_input import CHUNK_ARRAYS
from prismline_contracts.decomposition import COLUMNS
from prismline_contracts.summaries import Kind, Summary, read_summaries
from prismline_contracts_tool import catalogue
from prismline_contracts_tool.registry import REGISTRY, read_registry
from prismline_contracts_tool.schemas import MODELS, schema_of

CONTRACTS = Path(__file__).parents[3] / "contracts"
ENTRIES = read_registry(CONTRACTS / REGISTRY)
MESSAGES = [name for name, entry in ENTRIES.items() if entry.channel]
FILES = catalogue.files(CONTRACTS)
DOCUMENT: dict[str, Any] = json.loads(FILES[catalogue.ASYNCAPI])
#: `make contracts` installs the official schema here.
OFFICIAL = Path(sys.prefix) / "npm/node_modules/@asyncapi/specs/schemas/3.0.0.json"


@pytest.mark.skipif(not OFFICIAL.exists(), reason="`make contracts` installs the schema of AsyncAPI")
def test_the_asyncapi_document_is_valid_by_the_official_schema() -> None:
    official = json.loads(OFFICIAL.read_text())
    validator = jsonschema.Draft7Validator(official)
    assert [error.message for error in validator.iter_errors(DOCUMENT)] == []
    damages: list[dict[str, Any]] = [
        {"asyncapi": "3.0"},
        {"channels": {"bus": {"address": 1}}},
        {"operations": {"a": {}}},
    ]
    for damage in damages:
        assert not validator.is_valid(DOCUMENT | damage)


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    references = set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(DOCUMENT)))
    assert references
    assert {reference for reference in references if not leads_somewhere(reference)} == set()


def leads_somewhere(reference: str) -> bool:
    """Whether the document has the target of a reference."""
    found: Any = DOCUMENT
    for part in reference.split("/"):
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return True


@pytest.mark.parametrize("name", MESSAGES)
def test_the_example_of_a_message_satisfies_its_payload_in_the_asyncapi_document(name: str) -> None:
    message = DOCUMENT["components"]["messages"][name]
    payload = jsonschema.Draft202012Validator(DOCUMENT | {"$ref": f"#/components/messages/{name}/payload"})
    (example,) = (each["payload"] for each in message["examples"])
    assert payload.is_valid(example)
    required = schema_of(name)["required"]
    for field in required:
        assert not payload.is_valid(example | {"data": {k: v for k, v in example["data"].items() if k != field}})
    assert not payload.is_valid(example | {"type": "prismline.other.v1"})


def test_whoever_sends_and_receives_is_an_operation() -> None:
    operations = DOCUMENT["operations"]
    assert operations["splitter.send.chunk.process.v1"]["channel"] == {"$ref": "#/channels/chunks"}
    assert operations["worker.receive.chunk.process.v1"]["action"] == "receive"
    assert len(operations) == sum(len(ENTRIES[name].producers) + len(ENTRIES[name].consumers) for name in MESSAGES)


class Page(HTMLParser):
    """The links, the anchors and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.text += " "
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given["id"]} if "id" in given else set()
        self.loaded += [given["src"]] if "src" in given else []
        (self.links if tag == "a" else self.loaded).extend([given["href"]] if "href" in given else [])

    def handle_endtag(self, _tag: str) -> None:
        self.text += " "

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_package_says_the_same_in_a_few_words() -> None:
    assert read_summaries() == [Summary.model_validate(each) for each in json.loads(catalogue.summaries(ENTRIES))], (
        "run `make schemas`"
    )


PAGES = {Path(path).name: text for path, text in FILES.items() if path.startswith(catalogue.CATALOGUE)}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_a_server_and_its_links_lead_somewhere(name: str) -> None:
    page = Page(PAGES[name])
    assert page.loaded == []
    for link in page.links:
        file, _, anchor = link.partition("#")
        assert (file or name) in PAGES
        assert not anchor or anchor in Page(PAGES[file or name]).anchors


@pytest.mark.parametrize("name", MODELS)
def test_a_page_has_fields_example_writers_readers_and_history(name: str) -> None:
    text, entry = Page(PAGES[f"{name}.html"]).text, ENTRIES[name]
    assert schema_of(name)["properties"].keys() <= set(re.findall(r"\w+", text))
    assert ", ".join(entry.producers) in text
    assert ", ".join(entry.consumers) in text
    assert ("who sends" in text) is (entry.kind is Kind.MESSAGE)
    assert all(release in text or release == "next" for release in entry.history)
    example = json.loads((CONTRACTS / REGISTRY / name / "example.json").read_text())
    assert json.dumps(example, indent=2, ensure_ascii=False) in text


@pytest.mark.parametrize(
    ("name", "fields"),
    [("chunk_input.v1", [each.name for each in CHUNK_ARRAYS]), ("decomposition.v1", [each.name for each in COLUMNS])],
)
def test_a_page_of_a_file_has_its_fields(name: str, fields: list[str]) -> None:
    assert re.findall(r"<td><code>(\w+)</code></td>", PAGES[f"{name}.html"]) == fields


def test_a_page_says_what_the_comments_in_the_model_say() -> None:
    text = Page(PAGES["chunk_item.v1.html"]).text
    assert "Why the latest attempt did not complete the chunk." in text
    assert '"FAILED"  and later values' in text

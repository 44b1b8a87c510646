"""`trainmaster plan`: what a job would become, printed without any cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import yaml

from trainmaster import frameworks
from trainmaster.api import reading
from trainmaster.api.job import Job
from trainmaster.api.settings import Settings
from trainmaster.cli import documents, kinds, tables, yamltext
from trainmaster.cli.documents import UNKNOWN, BadDocument, Document
from trainmaster.cli.submit import naming
from trainmaster.engine.blueprint import blueprint
from trainmaster.engine.observed import Observed
from trainmaster.objects.meta import Json, encode


def run(files: Sequence[str], output: str, namespace: str, settings: Settings) -> int:
    """Everything is read before anything is printed: of files with a mistake, nothing is."""
    try:
        read = [found for document in documents.read(files) if (found := _read(document, namespace, settings))]
    except BadDocument as error:
        print(error, file=sys.stderr)
        return 2
    if not read:
        print("nothing to plan: no training job in what was given", file=sys.stderr)
        return 2
    planned = (item for observed in read for item in _objects(observed))
    if output == "table":
        print_table(planned)
    else:
        for text in listed(planned, output):
            sys.stdout.write(text)
    return 0


def _read(document: Document, namespace: str, settings: Settings) -> Observed | None:
    body = document.named
    found = frameworks.serving(body.get("apiVersion"), body["kind"])
    if found is None:
        _skip(document)
        return None
    framework, resource = found
    metadata = body.get("metadata")
    placed = {"namespace": namespace, **metadata} if isinstance(metadata, dict) else metadata
    read = reading.read(framework, {**body, "metadata": placed}, settings, resource)
    for advice in read.advice:
        print(f"{document}: warning: {advice.message}", file=sys.stderr)
    if document.is_generated:
        print(f"{document}: the cluster makes its name; {UNKNOWN} stands for the end of it", file=sys.stderr)
    if read.job is None:
        problems = "\n".join(f"  {problem}" for problem in naming(document, read.problems))
        raise BadDocument(f"{document} is not valid:\n{problems}")
    return Observed(read.framework, read.job)


def _objects(observed: Observed) -> Iterator[Json]:
    """Each is built when its turn comes: a job may have twenty thousand."""
    for action in blueprint(observed):
        yield _standalone(action.body, observed.job)


def _skip(document: Document) -> None:
    if kinds.looks_like_a_job(document):
        raise BadDocument(kinds.unknown(document))
    print(f"{document}: passed over, it is no training job", file=sys.stderr)


def _standalone(body: Json, job: Job) -> Json:
    """A job that was never stored has no UID to be owned by; what is printed can then be applied by itself."""
    if job.meta.uid:
        return body
    return {**body, "metadata": {k: v for k, v in body["metadata"].items() if k != "ownerReferences"}}


def listed(items: Iterable[Json], output: str) -> Iterator[str]:
    """The text of a List, object by object, so that a large one is never in memory as a whole."""
    if output == "json":
        yield '{\n  "apiVersion": "v1",\n  "kind": "List",\n  "items": ['
        for number, item in enumerate(items):
            text = msgspec.json.format(encode(item), indent=2).decode().replace("\n", "\n    ")
            yield f"{',' if number else ''}\n    {text}"
        yield "\n  ]\n}\n"
    else:
        yield "apiVersion: v1\nkind: List\nitems:\n"
        yield from map(yamltext.item_of, items)


def rendered(value: Any, output: str) -> str:
    if output == "json":
        return json.dumps(value, indent=2, ensure_ascii=False)
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000).rstrip()


class _Dumper(yaml.SafeDumper):
    """Plain YAML: no anchors, and texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def print_table(planned: Iterable[Json]) -> None:
    rows = [("KIND", "NAMESPACE", "NAME", "DETAIL")]
    for item in planned:
        metadata = item["metadata"]
        rows.append((item["kind"], metadata.get("namespace", ""), metadata["name"], _detail(item)))
    widths = tables.widths_of(rows)
    for row in rows:
        print(tables.aligned(row, widths))


def _detail(item: Json) -> str:
    spec = item.get("spec", {})
    match item["kind"]:
        case "Pod":
            return str(spec["containers"][0].get("image", ""))
        case "Service":
            return ", ".join(f"{port['name']} {port['port']}" for port in spec.get("ports", ()))
        case "PodGroup":
            return f"minMember {spec.get('minMember')}"
        case "HorizontalPodAutoscaler":
            return f"{spec.get('minReplicas')} to {spec.get('maxReplicas')} replicas"
    return ""

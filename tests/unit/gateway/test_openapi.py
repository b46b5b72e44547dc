"""The document describes the routes that are really served."""

import json
import re

from colo_gateway.openapi import ROUTES, openapi


def test_every_reference_of_the_document_resolves() -> None:
    document = openapi("1.2.3")
    text = json.dumps(document)
    for name in re.findall(r'"#/components/schemas/([^"]+)"', text):
        assert name in document["components"]["schemas"], name
    assert document["info"]["version"] == "1.2.3"
    assert len(document["paths"]) == len({route.path for route in ROUTES})


def test_path_parameters_are_declared() -> None:
    for route in ROUTES:
        declared = {parameter.name for parameter in route.parameters if parameter.where == "path"}
        assert declared == set(re.findall(r"\{(\w+)\}", route.path)), route.path

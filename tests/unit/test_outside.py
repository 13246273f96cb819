"""Files from outside: nothing in them is run, nothing is written elsewhere, each gets one line."""

from __future__ import annotations

import ast
import io
import json
import os
import pickle
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import imir_detect
from imir_detect import Report, compare, open_model, save_model
from imir_detect.cli import main
from imir_detect.cli.terminal import escape
from imir_detect.errors import UnknownNameError, UnreadableFileError
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.store import load_model, read_card
from imir_detect.zoo import HOME
from imir_detect.zoo.cards import model_folder

PACKAGE = Path(imir_detect.__file__).parent


class Boom:
    """A pickle of this makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def cut_archive() -> bytes:
    stream = io.BytesIO()
    torch.save({"a": torch.zeros(100)}, stream)
    return stream.getvalue()[:200]


def climbing_archive(folder: Path) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("../../pwned", b"x")
        archive.writestr("archive/data.pkl", pickle.dumps(Boom(folder / "pwned")))
        archive.writestr("archive/version", b"3\n")
    return stream.getvalue()


KINDS: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda folder: b"",
    "text": lambda folder: b"hello",
    "pickle": lambda folder: pickle.dumps(Boom(folder / "pwned")),
    "archive with code": climbing_archive,
    "cut archive": lambda folder: cut_archive(),
    "endless header": lambda folder: struct.pack("<Q", 2**60) + b"{}",
    "header that is no JSON": lambda folder: struct.pack("<Q", 4) + b"nope",
    "NaN": lambda folder: b'{"format": NaN}',
    "deep": lambda folder: b"[" * 100_000,
    "UTF-16": lambda folder: '{"format": 1}'.encode("utf-16"),
    "byte order mark": lambda folder: b'\xef\xbb\xbf{"format": 1}',
    "a long number": lambda folder: b'{"format": ' + b"9" * 5000 + b"}",
}


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that the program leaves with."""
    before, sys.argv = sys.argv, ["imir-detect", *arguments]
    try:
        with pytest.raises(SystemExit) as left:
            main()
    finally:
        sys.argv = before
    said = capsys.readouterr()
    assert left.value.code == 1
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert "error: unexpected" not in said.err
    assert "Traceback" not in said.err + said.out
    return said.err


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["x.json", "x.pt", "x.pkl", "x.safetensors", "model/card.json"])
def test_hostile_files_get_one_line(
    kind: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "home" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(KINDS[kind](tmp_path))
    if name == "x.json":
        assert "is not a readable report" in refused(["compare", str(path)], capsys)
    elif name == "model/card.json":
        assert "no readable model card" in refused(["detect", str(path.parent)], capsys)
        refused(["zoo", "list", "--folder", str(path.parents[1])], capsys)
    else:
        assert "unsafe or unreadable checkpoint" in refused(["detect", str(path)], capsys)
    assert not (tmp_path / "pwned").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("make", ["folder", "pipe", "loop", "absent", "device"])
def test_what_is_no_regular_file_gets_one_line(
    make: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in (".json", ".pt", ".safetensors"):
        path = tmp_path / f"x{suffix}"
        if make == "folder":
            path.mkdir()
        elif make == "pipe":
            os.mkfifo(path)
        elif make == "loop":
            path.symlink_to(path)
        elif make == "device":
            path.symlink_to("/dev/zero")
        refused(["compare" if suffix == ".json" else "detect", str(path)], capsys)


@pytest.mark.skipif(os.geteuid() == 0, reason="everything may be read by root")
def test_a_file_that_may_not_be_read_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "x.json").chmod(0)
    assert "PermissionError" in refused(["compare", str(tmp_path / "x.json")], capsys)


SPEC = ModelSpec(9, 6, d_model=8, n_heads=2)


def test_the_file_of_another_model_under_this_card_is_refused(tmp_path: Path) -> None:
    for seed in (0, 1):
        save_model(SPEC.boot(seed=seed), SPEC, tmp_path / str(seed))
    shutil.copy(tmp_path / "1" / "model.safetensors", tmp_path / "0")
    with pytest.raises(UnreadableFileError, match="is not the file its card describes; got an"):
        load_model(tmp_path / "0")


@pytest.mark.parametrize("name", ["../icl", "/etc", "..", ".", "", "icl/../iwl", "no-such"])
def test_a_models_name_never_leads_elsewhere(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"no such model in .*; got .*; wanted "):
        model_folder(HOME, name)
    assert model_folder(HOME, "icl") == HOME / "icl"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"measured": {"accuracy": None}}, "measured.accuracy is null, not a finite number"),
        ({"measured": [1]}, r"measured is a list, not a mapping"),
        ({"task": {"name": "recall"}}, "task.knobs is missing"),
        ({"sha256": 1}, "sha256 is 1, not text"),
        ({"heads": [{"layer": 0}]}, r"heads\[0\].head is missing; heads\[0\].back is missing"),
        ({"label": None}, "label is null, not text"),
    ],
)
def test_every_field_of_a_card_is_checked(
    change: dict[str, Any], text: str, tmp_path: Path
) -> None:
    card = json.loads((HOME / "icl" / "card.json").read_text())
    (tmp_path / "card.json").write_text(json.dumps({**card, **change}))
    with pytest.raises(UnreadableFileError, match=text):
        read_card(tmp_path)


def test_a_bare_card_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(SPEC.boot(seed=0), SPEC, tmp_path / "mine", {"label": "\x1b[2J[red]x"})
    sys.argv = ["imir-detect", "zoo", "list", "--folder", str(tmp_path)]
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code
    out = capsys.readouterr().out
    assert "2L2H d8" in out
    assert "\x1b" not in out


def test_text_never_steers_the_terminal() -> None:
    assert escape("a\x1b[2J\x07\u202e\ud800\n\té") == "a\\x1b[2J\\x07\\u202e\\ud800\n\té"
    assert escape("[red]") == r"\[red]"


HOSTILE = "</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"


def test_names_never_become_markup(shipped: dict[str, Any], tmp_path: Path) -> None:
    both = compare({HOSTILE: shipped["icl"][1], "<b>": shipped["none"][1]})
    pages = [both.to_html(tmp_path / "both.html").read_text(), both._repr_html_()]
    pages.append(shipped["icl"][1].to_html(tmp_path / "one.html", name=HOSTILE).read_text())
    for page in pages:
        assert "<img src=x" not in page
        assert "</script><img" not in page
    assert all("&lt;img src=x onerror=alert(1)&gt;{{ 7 * 7 }}" in page for page in pages)


# -- what the code may not do ---------------------------------------------------------------------

NEVER_IMPORTED = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "tarfile", "zipfile"}
NEVER_CALLED = {"eval", "exec", "compile", "os.system", "os.popen", "shutil.unpack_archive"}
MAY_PARSE = {"strict.py", "files.py"}  # the one reader, and a comparison of what is in memory


def violations(source: str, name: str) -> list[str]:
    """Where a module loads what could hold code, or reads or writes JSON that is not strict."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [a.name for a in node.names] + [getattr(node, "module", None) or ""]
            found += [f"{name} imports {m}" for m in modules if m.split(".")[0] in NEVER_IMPORTED]
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
        if called == "torch.load" and keywords.get("weights_only") != "True":
            found.append(f"{name}: torch.load without weights_only=True")
        if keywords.get("allow_pickle", "False") != "False":
            found.append(f"{name}: allow_pickle")
        if keywords.get("trust_remote_code", "False") != "False":
            found.append(f"{name}: trust_remote_code")
        if called in NEVER_CALLED or called.endswith((".extractall", ".extract")):
            found.append(f"{name} calls {called}")
        if called in ("json.load", "json.loads") and name not in MAY_PARSE:
            found.append(f"{name}: JSON that is not read strictly")
    return found


def test_nothing_in_the_package_runs_what_a_file_holds() -> None:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        found += violations(file.read_text(encoding="utf-8"), str(file.relative_to(PACKAGE)))
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.load('x')",
        "torch.load('x', weights_only=False)",
        "import pickle",
        "from zipfile import ZipFile",
        "import numpy\nnumpy.load('x', allow_pickle=True)",
        "AutoModel.from_pretrained('x', trust_remote_code=True)",
        "archive.extractall()",
        "eval('1')",
        "json.loads('{}')",
    ],
)
def test_the_check_trips(source: str) -> None:
    assert violations(source, "x.py")


def test_a_report_of_another_kind_of_file_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="is not a readable report; got IsADirectoryErr"):
        Report.from_json(tmp_path)
    (tmp_path / "odd.xyz").write_bytes(b"x")
    with pytest.raises(UnreadableFileError, match=r"is no model file; got \.xyz; wanted \.gguf"):
        open_model(tmp_path / "odd.xyz")

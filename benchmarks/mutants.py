"""Small faults to plant in a source file: a changed operator, number, argument, call, statement.

Left alone: docstrings and strings of every kind, what a `raise` says, type annotations, caches'
sizes, and what a progress bar shows. A mutant is a span of the file and what to put there, so that
the rest of the file stays as it is, letter by letter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
COMPARE = {
    ast.Lt: ("<", "<=", ">"),
    ast.LtE: ("<=", "<", ">="),
    ast.Gt: (">", ">=", "<"),
    ast.GtE: (">=", ">", "<="),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
UNARY = {ast.Not: "not", ast.USub: "-", ast.Invert: "~"}
PAIRS = [
    ("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"),
    ("any", "all"), ("tril", "triu"), ("sum", "mean"),
]  # fmt: skip
RENAMED = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
BUILTIN = {"min", "max", "any", "all"}  # names that may stand without a module or an object
DROPPED = {"abs", "clamp", "sqrt", "exp", "log", "square", "pow", "nan_to_num", "masked_fill"}
SYMMETRIC = {"min", "max", "minimum", "maximum", "equal", "gcd"}
SILENT = {"lru_cache", "tqdm"}  # what is given to these changes no result


@dataclass(frozen=True)
class Mutant:
    """`new` in place of the bytes start .. end of `file`; `lines`: first and last of the
    statement it stands in (of a compound one, of its head)."""

    file: str
    line: int
    column: int
    operator: str
    start: int
    end: int
    old: str
    new: str
    lines: tuple[int, int]

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.operator} `{self.old}` -> `{self.new}`"

    def apply(self, source: str) -> str:
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def mutants(file: str, source: str) -> list[Mutant]:
    """Every mutant of a source file, in order of place."""
    return sorted(set(_Finder(file, source).all()), key=lambda m: (m.start, m.end, m.new))


class _Finder:
    def __init__(self, file: str, source: str) -> None:
        self.file, self.data = file, source.encode()
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.tree = ast.parse(source)
        self.statement: ast.stmt = self.tree.body[0]
        self.bound: set[str] = set()  # names of the function at hand that have a value already

    # -- places ------------------------------------------------------------------------------

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        return self.starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def text(self, node: ast.expr | ast.stmt) -> str:
        return self.data[self.start(node) : self.end(node)].decode()

    def put(self, operator: str, start: int, end: int, new: str) -> Mutant:
        line = sum(s <= start for s in self.starts)
        body = getattr(self.statement, "body", None)
        last = body[0].lineno - 1 if body else self.statement.end_lineno
        first = self.statement.lineno
        shown = " ".join(self.data[start:end].decode().split())
        return Mutant(
            self.file,
            line,
            start - self.starts[line - 1],
            operator,
            start,
            end,
            shown if len(shown) <= 60 else shown[:57] + "...",
            new,
            (first, max(first, last or first)),
        )

    def between(
        self, operator: str, left: ast.expr, right: ast.expr, old: str, new: str
    ) -> Iterator[Mutant]:
        """`old`, which stands between two expressions, becomes `new`."""
        start, end = self.end(left), self.start(right)
        gap = self.data[start:end].decode()
        pattern = r"\s+".join(map(re.escape, old.split()))
        found = re.search(pattern, re.sub(r"#[^\n]*", lambda m: " " * len(m[0]), gap))
        if found:
            at = start + len(gap[: found.start()].encode())
            yield self.put(operator, at, at + len(found[0].encode()), new)

    # -- the walk ----------------------------------------------------------------------------

    def all(self) -> Iterator[Mutant]:
        for statement in self.tree.body:
            yield from self.visit(statement)

    def visit(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
            return
        if isinstance(node, ast.stmt):
            outer, self.statement = self.statement, node
            yield from self._statement(node)
            self.statement = outer
        elif isinstance(node, ast.expr):
            yield from self._expression(node)
            yield from self._children(node)
        else:
            yield from self._children(node)

    def _children(self, node: ast.AST) -> Iterator[Mutant]:
        silent = isinstance(node, ast.Call) and getattr(node.func, "id", "") in SILENT
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns") or (silent and name == "keywords"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self.visit(child)

    def _statement(self, node: ast.stmt) -> Iterator[Mutant]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            outer, self.bound = self.bound, set()
            yield from self._children(node)
            self.bound = outer
            return
        dropped = (ast.Raise, ast.Continue, ast.Break, ast.AugAssign)
        call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if isinstance(node, dropped) or call or self._assigned_again(node):
            yield self.put("drop", self.start(node), self.end(node), "pass")
        if isinstance(node, ast.Raise):
            return
        if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
            old, new = ARITHMETIC[type(node.op)]
            yield from self.between("arithmetic", node.target, node.value, old + "=", new + "=")
        if isinstance(node, ast.If):
            yield self._negated(node.test)
        if isinstance(node, ast.Return) and node.value is not None:
            yield from self._returned(node.value)
        yield from self._children(node)

    def _assigned_again(self, node: ast.stmt) -> bool:
        """Whether an assignment could go and leave every name with a value."""
        if not isinstance(node, ast.Assign):
            return False
        again = True
        for target in node.targets:
            parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            for part in parts:
                if isinstance(part, ast.Name):
                    again &= part.id in self.bound
                    self.bound.add(part.id)
        return again

    def _returned(self, value: ast.expr) -> Iterator[Mutant]:
        if not (isinstance(value, ast.Constant) and value.value is None):
            yield self.put("return", self.start(value), self.end(value), "None")
        if isinstance(value, (ast.BinOp, ast.Call)) and not self._is_words(value):
            yield self.put("return", self.start(value), self.end(value), f"-({self.text(value)})")

    def _is_words(self, value: ast.expr) -> bool:
        """Built of strings, or an object that has no negative: negating it proves nothing."""
        parts = list(ast.walk(value))
        words = any(isinstance(n, ast.JoinedStr) for n in parts) or any(
            isinstance(n, ast.Constant) and isinstance(n.value, str) for n in parts
        )
        function = value.func if isinstance(value, ast.Call) else None
        made = isinstance(function, ast.Name) and (
            function.id[:1].isupper() or function.id in ("tuple", "list", "set", "dict", "sorted")
        )
        return words or made

    def _negated(self, test: ast.expr) -> Mutant:
        return self.put("negate", self.start(test), self.end(test), f"not ({self.text(test)})")

    def _expression(self, node: ast.expr) -> Iterator[Mutant]:
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            old, new = ARITHMETIC[type(node.op)]
            yield from self.between("arithmetic", node.left, node.right, old, new)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
                old, *others = COMPARE[type(op)]
                for new in others:
                    yield from self.between("compare", left, right, old, new)
        elif isinstance(node, ast.BoolOp):
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from self.between("boolean", left, right, old, new)
        elif isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
            start = self.start(node)
            yield self.put("unary", start, start + len(UNARY[type(node.op)]), "")
        elif isinstance(node, ast.Constant):
            yield from self._constant(node)
        elif isinstance(node, ast.IfExp):
            yield self._negated(node.test)
        elif isinstance(node, ast.Slice):
            for bound in (node.lower, node.upper):
                if bound is not None:
                    yield self.put("slice", self.start(bound), self.end(bound), "")
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            for test in (test for part in node.generators for test in part.ifs):
                yield self._negated(test)
        elif isinstance(node, ast.Call):
            yield from self._call(node)

    def _constant(self, node: ast.Constant) -> Iterator[Mutant]:
        value, start, end = node.value, self.start(node), self.end(node)
        if isinstance(value, bool):
            yield self.put("constant", start, end, str(not value))
        elif isinstance(value, int):
            for new in (value + 1, value - 1):
                yield self.put("constant", start, end, f"({new})" if new < 0 else str(new))
        elif isinstance(value, float):
            yield self.put("constant", start, end, repr(2 * value if value else 1.0))

    def _call(self, node: ast.Call) -> Iterator[Mutant]:
        function = node.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        if name in RENAMED and (isinstance(function, ast.Attribute) or name in BUILTIN):
            end = self.end(function)
            yield self.put("rename", end - len(name), end, RENAMED[name])
        if isinstance(function, ast.Attribute) and name in DROPPED:
            dot = self.data.rindex(b".", 0, self.end(function))
            yield self.put("call", dot, self.end(node), "")
        if name == "sorted" and len(node.args) == 1:
            new = f"list({self.text(node.args[0])})"
            yield self.put("call", self.start(node), self.end(node), new)
        yield from self._swapped(name, node.args[:2])

    def _swapped(self, name: str, args: list[ast.expr]) -> Iterator[Mutant]:
        """The first two arguments in the other order; words (an einsum's law) stay first."""
        if len(args) < 2 or name in SYMMETRIC or self.text(args[0]) == self.text(args[1]):
            return
        words = any(
            isinstance(a, (ast.JoinedStr, ast.Starred))
            or (isinstance(a, ast.Constant) and isinstance(a.value, str))
            for a in args
        )
        if not words:
            first, second = args
            gap = self.data[self.end(first) : self.start(second)].decode()
            new = self.text(second) + gap + self.text(first)
            yield self.put("swap", self.start(first), self.end(second), new)

"""What of an answer's text may run: Python that parses, and, for a kernel, the Triton language only."""

import ast
import contextlib
import re
import types

LIMIT = 100_000  # characters of one answer
_COMMENT = re.compile(r"#[# \t]*(?:NBVAL|PYTEST_VALIDATE)_\w*")
_BUILTINS = {"range", "min", "max", "abs", "len", "float", "int", "bool", "print", "isinstance", "tuple", "list",
             "sum", "enumerate", "zip", "pow", "round", "None", "str", "slice"}
_COMMON = ("import math", "import numpy as np", "import torch", "import triton", "import triton.language as tl")
_IMPORTS = {"import math", "import numpy", "import torch", "import triton", "import triton.language",
            *(f"from triton import {name}" for name in ("jit", "cdiv", "next_power_of_2", "language")),
            *(f"from triton.language import {name}" for name in ("math", "constexpr", "extra")),
            "from triton.language.extra import libdevice"}
_LANGUAGE = {"math", "numpy", "torch", "triton", "triton.language", "triton.language.math", "triton.language.extra",
             "triton.language.extra.libdevice", "triton.language.extra.cuda", "triton.language.extra.cuda.libdevice"}
_JIT = re.compile(r"(?:triton\.)?(?:jit|constexpr_function)(?:\(.*\))?", re.DOTALL)


class Refused(Exception):
    """Why an answer is not run, in one sentence."""


class Broken(Exception):
    """Why an answer is not Python, in one sentence."""


def cleaned(text: str) -> str:
    """The answer without comments that steer nbval. Raises Refused (magics, size) or Broken (syntax)."""
    if len(text) > LIMIT:
        raise Refused(f"the answer has {len(text)} characters; at most {LIMIT} are run.")
    text = _COMMENT.sub("# ", text.encode("utf-8", "replace").decode()).replace("\r\n", "\n").replace("\r", "\n")
    if parsed(text) is None:
        for number, line in enumerate(text.split("\n"), 1):
            if re.match(r"\s*(%{1,2}\w|!|\?)|.*\w\?\s*$", line):
                raise Refused(f"line {number} of the answer is a magic or a shell command: take it out.")
        try:
            compile(text, "answer", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            raise Broken(f"{type(error).__name__} in line {error.lineno} of the answer: {error.msg}.") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise Broken(f"the answer is not Python ({type(error).__name__}).") from None
    return text


def parsed(text: str) -> ast.Module | None:
    """The syntax tree of an answer, or None if it is not Python."""
    try:
        return compile(text, "answer", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def same(one: str, other: str) -> bool:
    """Whether two answers are the same code: comments and blank lines do not count."""
    trees = parsed(one), parsed(other)
    if None in trees:
        return one.split() == other.split()
    return ast.dump(trees[0]) == ast.dump(trees[1])


def constants(text: str) -> dict[str, object]:
    """The plain numbers, strings and tuples that an answer assigns at its top level."""
    found = {}
    for node in parsed(text).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def kernel_only(text: str) -> str:
    """What a kernel exercise runs of an answer: @triton.jit functions, constants, imports of the language.

    Nothing else of it can then get between the check and the kernel. Raises Refused if a kernel reaches
    beyond the language.
    """
    kept, imports = [], []
    for node in parsed(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports += [part for part in _split(node) if ast.unparse(part).split(" as ")[0] in _IMPORTS]
        elif isinstance(node, ast.FunctionDef):
            if node.decorator_list and all(_JIT.fullmatch(ast.unparse(d)) for d in node.decorator_list):
                kept.append(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _constant(node.value):
            targets = getattr(node, "targets", None) or [node.target]
            if all(isinstance(target, ast.Name) for target in targets):
                kept.append(node)
    lines = [*_COMMON, *(ast.unparse(node) for node in imports)]
    names: dict[str, object] = {}
    with contextlib.suppress(ImportError):  # no triton here: then no kernel runs, either
        exec("\n".join(lines), names)
    known = set(names) | {name for node in kept for name in _set_by(node)}
    for node in kept:
        _refuse_beyond(node, known, names)
    return "\n".join([*lines, *(ast.unparse(node) for node in kept)]) + "\n"


def _split(node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
    """An import statement as one statement a name."""
    if isinstance(node, ast.Import):
        return [ast.Import([alias]) for alias in node.names]
    return [ast.ImportFrom(node.module, [alias], node.level) for alias in node.names]


def _set_by(node: ast.AST) -> set[str]:
    """The names that a statement and what stands in it set: functions, arguments, variables."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names | {getattr(n, "arg", None) or getattr(n, "name", "") for n in ast.walk(node)
                    if isinstance(n, (ast.arg, ast.FunctionDef))}


def _constant(value: ast.expr) -> bool:
    """Whether an assigned value is arithmetic on literals, names and functions of math, NumPy or the language."""
    allowed = (ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator,
               ast.unaryop, ast.expr_context)
    calls = (node.func for node in ast.walk(value) if isinstance(node, ast.Call))
    return all(isinstance(node, allowed) for node in ast.walk(value)) and all(
        re.fullmatch(r"(tl|triton\.language|math|np|numpy)\.\w+|float|int|constexpr", ast.unparse(f)) for f in calls)


def _refuse_beyond(tree: ast.AST, known: set[str], names: dict[str, object]) -> None:
    """Raise Refused at a name, an attribute or a statement through which a kernel could leave the language."""
    bases = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)):
            raise Refused("a kernel may not import or declare globals: use the arguments and triton.language.")
        if not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        chain = ast.unparse(node)
        unknown = isinstance(node, ast.Name) and node.id not in known | _BUILTINS
        private = isinstance(node, ast.Attribute) and node.attr.startswith("_")
        module = _module(chain, names)
        beyond = module and (module not in _LANGUAGE or id(node) not in bases)
        if unknown or private or beyond:
            raise Refused(f"a kernel exercise may not use {chain}: it is not of the Triton language.")


def _module(chain: str, names: dict[str, object]) -> str:
    """The name of the module that a dotted name stands for, or ""."""
    first, *rest = chain.split(".")
    value = names.get(first)
    for part in rest:
        value = getattr(value, part, None)
    return value.__name__ if isinstance(value, types.ModuleType) else ""

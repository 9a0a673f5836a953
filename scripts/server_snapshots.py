"""What a plug-in relies on in a server, from the server's Python files: parameters of methods and functions, fields of dataclasses,
members of enums, attributes of objects. Nothing of the server is imported, so neither torch nor a GPU is needed.
scripts/snapshot_vllm.py and scripts/snapshot_sglang.py name what matters.
"""
import ast
import json
import pathlib
import sys


def parameters(function):
    found = function.args
    return [argument.arg for argument in (*found.posonlyargs, *found.args, *found.kwonlyargs)]


def told(node):
    """A function as its parameters; a class as its methods, and its fields or members."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return parameters(node)
    methods, fields = {}, []
    for part in node.body:
        if isinstance(part, ast.FunctionDef):
            methods[part.name] = parameters(part)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            fields.append(part.target.id)
        elif isinstance(part, ast.Assign):
            fields += [target.id for target in part.targets if isinstance(target, ast.Name)]
    return {"methods": methods, "fields": fields}


def returned(function):
    """What its return statements have, in their order."""
    return [ast.unparse(part.value) for part in ast.walk(function) if isinstance(part, ast.Return) and part.value is not None]


def registered(node):
    """The parameters that a class of torch's gives to self through vLLM's replace_parameter()."""
    return [part.args[1].value for part in ast.walk(node) if isinstance(part, ast.Call) and ast.unparse(part.func) == "replace_parameter"
            and ast.unparse(part.args[0]) == "self" and isinstance(part.args[1], ast.Constant)]


def uses(node):
    """{"name of self": [calls that have it as an argument]}."""
    found = {}
    for part in ast.walk(node):
        for argument in part.args if isinstance(part, ast.Call) else ():
            if isinstance(argument, ast.Attribute) and ast.unparse(argument.value) == "self":
                found.setdefault(argument.attr, []).append(ast.unparse(part))
    return found


def members(node):
    """{"Class.name": what it is} of a class: its methods as parameters, its fields, and what its methods assign to self or register
    there. "Class.name()" is what a method returns, and "Class@name" the calls that have an attribute as an argument."""
    found = {f"{node.name}.{part.attr}": "assigned" for part in ast.walk(node)
             if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
             and isinstance(part.value, ast.Name) and part.value.id == "self"}
    found |= {f"{node.name}.{name}": "registered" for name in registered(node)}
    found |= {f"{node.name}@{name}": calls for name, calls in uses(node).items()}
    found |= {f"{node.name}.{part.name}()": returned(part) for part in node.body if isinstance(part, ast.FunctionDef)}
    of_class = told(node)
    found |= {f"{node.name}.{field}": "assigned" for field in of_class["fields"]}
    return found | {f"{node.name}.{name}": of for name, of in of_class["methods"].items()}


def definitions(text):
    """{name: what it is} of a file. A name that is only imported or assigned there is told as such."""
    found = {}
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: "imported" for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= members(node)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = told(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: "assigned" for target in targets if isinstance(target, ast.Name)}
    return found


def snapshot(tree, wanted):
    """{file: {name: what it is}} of {file: names}; a name that is missing is null. "Class.name" is a member of a class: see members()."""
    made = {}
    for file, names in wanted.items():
        path = pathlib.Path(tree) / file
        found = definitions(path.read_text(encoding="utf-8")) if path.is_file() else {}
        made[file] = {name: found.get(name) for name in names}
    return made


def main(usage, package, names, parts):
    """Prints the snapshot of `names` from the tree that the command line names. parts: {option: other names}."""
    options = sys.argv[2:]
    if len(sys.argv) not in (2, 3) or not set(options) <= set(parts) or not pathlib.Path(sys.argv[1], package).is_dir():
        sys.exit(usage)
    print(json.dumps(snapshot(sys.argv[1], parts[options[0]] if options else names), indent=1))

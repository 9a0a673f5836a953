"""Who gets what a layer of a model makes, read from the source of forward(). What takes the place of a tensor between two layers
must meet nothing else. And who holds a layer or a weight.
"""
import ast
import inspect
import textwrap
from collections import Counter


def function_of(forward):
    """The function as ast has it; None if there is no source."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(forward))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None


def calls(value, name):
    """Whether an expression is a call of self.`name`."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == f"self.{name}"


def assigns(statement, name):
    """Whether a statement assigns what self.`name` returns."""
    return isinstance(statement, ast.Assign) and len(statement.targets) == 1 and calls(statement.value, name)


def mentions(node, name):
    """How often self.`name` is read in it."""
    return sum(isinstance(each, ast.Attribute) and ast.unparse(each) == f"self.{name}" for each in ast.walk(node))


def first_name(statement):
    """The name that a statement assigns, or the first of two."""
    target = statement.targets[0]
    if isinstance(target, ast.Tuple) and len(target.elts) == 2:
        target = target.elts[0]
    return target.id if isinstance(target, ast.Name) else None


def reads(nodes, name):
    """How often the variable is read in them."""
    return sum(isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load) for node in nodes for each in ast.walk(node))


def ends(statement, behind, name):
    """Whether nothing reads the variable's value behind the statement: it assigns the variable, or no statement reads it."""
    return first_name(statement) == name or not reads(behind, name)


def feeds(forward, first, second):
    """Whether forward() calls self.`first` once, and gives its result, or the first of its results, to self.`second` in the
    next statement, and to nothing else."""
    function = function_of(forward)
    if function is None or mentions(function, first) != 1 or mentions(function, second) != 1:
        return False
    body = function.body
    for at, (makes, takes) in enumerate(zip(body, body[1:])):
        if assigns(makes, first):
            name = first_name(makes)
            return (name is not None and assigns(takes, second) and not takes.value.keywords and len(takes.value.args) == 1
                    and ast.unparse(takes.value.args[0]) == name and ends(takes, body[at + 2:], name))
    return False


def branches(statement):
    """The last statements of an if and its else; of another statement itself."""
    return [statement.body[-1], statement.orelse[-1]] if isinstance(statement, ast.If) and statement.orelse else [statement]


def passes_through(forward, norm, block):
    """Whether the result of self.`norm`, or the first of its results, goes to self.`block` in the next statement and to nothing
    else, also where an if chooses how the norm is called. Returns what the block has as the name of that argument, or its place;
    None if something else happens."""
    function = function_of(forward)
    if function is None or mentions(function, block) != 1:
        return None
    body = function.body
    for at, (makes, takes) in enumerate(zip(body, body[1:])):
        made = branches(makes)
        if not all(assigns(each, norm) for each in made):
            continue
        names = {first_name(each) for each in made}
        name = names.pop()
        if names or name is None or mentions(function, norm) != len(made) or not assigns(takes, block):
            return None
        given = takes.value
        if reads([given], name) != 1 or not ends(takes, body[at + 2:], name):
            return None
        for place, argument in enumerate(given.args):
            if ast.unparse(argument) == name:
                return place
        return next((keyword.arg for keyword in given.keywords if keyword.arg and ast.unparse(keyword.value) == name), None)
    return None


def begins_with(forward, layer, argument):
    """Whether forward() first gives its `argument`, a name or a place behind self, to self.`layer` alone, and reads it nowhere
    else."""
    function = function_of(forward)
    if function is None or mentions(function, layer) != 1:
        return False
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)][1:]
    if isinstance(argument, int):
        argument = names[argument] if argument < len(names) else None
    body = function.body[1:] if ast.get_docstring(function) else function.body
    if argument not in names or not body or not assigns(body[0], layer):
        return False
    given = body[0].value
    return (not given.keywords and [ast.unparse(each) for each in given.args] == [argument] and ends(body[0], body[1:], argument))


def held_twice(model):
    """The ids of layers and weights that several modules hold. To interleave such a weight for one would change it for all."""
    times = Counter(id(held) for module in model.modules() for held in (*module._modules.values(), *module._parameters.values()))
    return {held for held, count in times.items() if count > 1}

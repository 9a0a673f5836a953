"""kernelwright.plan(): a model's config.json in, the problems of one rank out, through the command."""
import json
import os
import pathlib
import subprocess
import tempfile

from ._command import NAME, find_command
from ._errors import ConfigError, InternalError, MissingError

BY_EXIT_CODE = {2: ConfigError, 3: MissingError}


class Plan(dict):
    """A plan as `kernelwright plan` writes it (docs/models.md): "name", "model", "serving", "problems" and "missing"."""

    def configs(self):
        """The config of each problem, by its name, as Engine.prepare() takes it."""
        return {problem["name"]: {"version": 1, **{key: problem[key] for key in ("kind", "name", "problem")}}
                for problem in self["problems"]}


def _options(given):
    for option, value in given.items():
        if value is None:
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            yield from ("--" + option, str(one))


def plan(config, *, tp=1, ep=1, kv=None, kv_scales=None, max_seqs=256, max_tokens=8192, server="vllm", page_size=None,
         archs=None, name=None):
    """The Plan of a model for one rank. config: a config.json or its folder, a dict of it, or a configuration object of
    transformers. The options are those of `kernelwright plan` (docs/models.md)."""
    if hasattr(config, "to_json_string"):
        config = json.loads(config.to_json_string(use_diff=False))
    options = list(_options({"tp": tp, "ep": ep, "kv": kv, "kv-scales": kv_scales, "max-seqs": max_seqs,
                             "max-tokens": max_tokens, "server": server, "page-size": page_size, "arch": archs, "name": name}))
    with tempfile.TemporaryDirectory() as folder:
        path = config
        if isinstance(config, dict):
            path = os.path.join(folder, "config.json")
            pathlib.Path(path).write_text(json.dumps(config), encoding="utf-8")
        done = subprocess.run([find_command(), "plan", os.fspath(path), "--json", *options], capture_output=True, text=True,
                              encoding="utf-8", check=False)
        if done.returncode != 0:
            text = done.stderr.strip().removeprefix(NAME + ": ")
            error = BY_EXIT_CODE.get(done.returncode, InternalError)
            raise error(text.replace(folder + os.sep, "") or f"the command ended with {done.returncode}")
    return Plan(json.loads(done.stdout))

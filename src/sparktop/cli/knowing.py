"""The commands that need no Spark: explain, lint, rules."""

from __future__ import annotations

from pathlib import Path

from sparktop.cli.compose import own_rules
from sparktop.cli.options import parser, settings
from sparktop.errors import UsageError


def explain(words: list[str]) -> int:
    """`sparktop explain`."""
    made = parser("sparktop explain [options] [FILE ...]")
    made.add_argument("files", nargs="*", metavar="FILE", help="a text of any kind; - or nothing is standard input")
    made.add_argument("--json", action="store_true", dest="as_json", help="findings as JSON")
    options = made.parse_args(words)
    settings(options)
    from sparktop.diagnose.logs.rules import shipped
    from sparktop.headless.explain import explain as tell

    own = own_rules()
    rules = (*shipped(), *own.strict().log) if own is not None else shipped()
    return tell(options.files, rules, as_json=options.as_json)


def lint(words: list[str]) -> int:
    """`sparktop lint`."""
    made = parser("sparktop lint [options] FILE [FILE ...]")
    made.add_argument("files", nargs="+", metavar="FILE", help="a launch configuration; - is standard input")
    made.add_argument("--json", action="store_true", dest="as_json", help="JSON")
    options = made.parse_args(words)
    settings(options)
    from sparktop.headless.lint import lint as tell

    own = own_rules()
    return tell(options.files, as_json=options.as_json, own=own.strict().lint if own is not None else ())


def rules(words: list[str]) -> int:
    """`sparktop rules`."""
    made = parser("sparktop rules list [--json] | show ID | check [FILE ...]")
    made.add_argument("what", choices=("list", "show", "check"), help="what to do")
    made.add_argument("names", nargs="*", metavar="ID|FILE", help="the rule to show; the files to check")
    made.add_argument("--json", action="store_true", dest="as_json", help="the list as JSON")
    options = made.parse_args(words)
    from sparktop.config import read_rule_file, user_rule_files
    from sparktop.diagnose.ownrules import read_own
    from sparktop.headless.rules import check_files, list_rules, show_rule

    if options.what == "check":
        given = [(name, read_rule_file(Path(name))) for name in options.names]
        return check_files(given or user_rule_files())
    own = read_own(user_rule_files()).strict()
    if options.what == "list":
        if options.names:
            raise UsageError("rules list takes no name", hint=f"sparktop rules show {options.names[0]}")
        return list_rules(own, as_json=options.as_json)
    if len(options.names) != 1:
        raise UsageError("which rule?", hint="sparktop rules show gpu.spin-deadlock · sparktop rules list")
    return show_rule(options.names[0], own)

"""A command: a function whose parameters are the arguments of a command line, and whose docstring is its help.

    @command(keyfile=Positional("KEYFILE", "file to write"), bits="bits", say="json quiet")
    def keygen(keyfile: str, bits: int, say: Namespace) -> int:

One name of :mod:`ags1.cli.options` stands for the value of that option. Several names stand for a namespace with their
values. :mod:`ags1.cli.table` has the names of the commands.
"""

from __future__ import annotations

from argparse import Namespace

from ags1.cli.options import BUNDLES, options_named
from ags1.support.exit_codes import EXIT_UNPROTECTED, worst_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

_JSON = """\
JSON, one object a line:
  {}
  `error` is null, or a message; then other fields may be missing.
"""


class Positional:
    """A positional argument.

    A `name` that ends with ``...`` takes several values; a name in brackets is optional. `dest` is the attribute of its
    value, if that is not called as the parameter; `settings` are those of argparse.
    """

    def __init__(self, name: str, text: str, *, dest: str = "", **settings: Any) -> None:
        several = "+" if name.endswith("...") else "?" if name.startswith("[") else None
        self.name, self.text, self.dest = name, text, dest
        self.settings = {"nargs": several} | settings


class OnSpark:
    """The cluster form of a command: a function of :mod:`ags1.spark`, whose parameters the options are.

    `places` are the parameters that get the positional arguments, and their help if it differs. `options` and `changed`
    are as for :func:`command`; `further` are more arguments.
    """

    def __init__(
        self,
        function: str,
        places: Mapping[str, str],
        options: str,
        changed: Mapping[str, Any] | None = None,
        **further: Any,
    ) -> None:
        self.function = function
        self.places = places
        self.options = f"{options} JOB"
        self.changed = changed or {}
        self.further = further


class Command:
    """A function, and what :func:`command` says of it."""

    def __init__(self, function: Callable[..., int], parameters: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        self._function = function
        self._parameters = parameters
        self._about = about
        self.spark: OnSpark | None = about["spark"]

    def places(self, *, on_spark: bool) -> Iterator[tuple[str, Positional]]:
        """The positional arguments, each with the attribute of its value."""
        found = [
            (each.dest or name, each)
            for name, given in self._parameters.items()
            for each in _parts(given)
            if isinstance(each, Positional)
        ]
        if not on_spark or self.spark is None:
            yield from found
            return
        for (dest, text), (_, place) in zip(self.spark.places.items(), found, strict=True):
            yield dest, Positional(place.name.rstrip("."), text or place.text, type=place.settings.get("type"))

    def options(self, *, on_spark: bool) -> str:
        """The names of the options."""
        if on_spark and self.spark is not None:
            return self.spark.options
        # What stands beside places has what many commands take, and comes last.
        given = sorted(self._parameters.values(), key=lambda each: isinstance(each, tuple))
        parts = [part for each in given for part in _parts(each) if isinstance(part, str)]
        return " ".join([*parts, "spark"] if self.spark is not None else parts)

    def changed(self, *, on_spark: bool) -> dict[str, dict[str, Any]]:
        """The settings of options that are others for this command; a text is the help."""
        found: dict[str, dict[str, Any]] = {}
        for changes in (self._about["changed"], self.spark.changed if on_spark and self.spark is not None else {}):
            for name, settings in changes.items():
                found.setdefault(name, {}).update({"help": settings} if isinstance(settings, str) else settings)
        return found

    def subject_of(self, options: Namespace) -> dict[str, Any] | None:
        """The first argument as a field of a JSON object, if there is one object for all that the command does."""
        subject = self._about["subject"]
        # Without --spark, and with it.
        names = (next(self.places(on_spark=each))[0] for each in (False, True))
        return None if subject is None else {subject: next(getattr(options, each) for each in names if each in options)}

    def needs(self, *, on_spark: bool) -> str:
        """Options in the usage text of which one is required."""
        return "" if on_spark else str(self._about["needs"])

    def texts(self, *, on_spark: bool) -> tuple[str, str]:
        """The description, and what stands below the options: texts that other commands have too, and its own."""
        import textwrap

        first, _, more = (self._function.__doc__ or "").partition("\n")
        documentation = f"{first}\n{textwrap.dedent(more)}".strip() + "\n"
        description, _, below = documentation.partition("\n\n")
        if "\n  " in description:
            # A section with a title.
            description, below = "", documentation
        if on_spark:
            return description, ""
        below, title, examples = below.partition("examples:\n")
        fields = self._about["fields"]
        parts = (self._about["epilog"], below.rstrip("\n"), _JSON.format(fields) if fields else "", title + examples)
        return description, "\n".join(f"{each.rstrip()}\n" for each in parts if each)

    def run(self, options: Namespace) -> int:
        """Call the function with what was parsed."""
        arguments = {name: _value(name, given, options) for name, given in self._parameters.items()}
        code = self._function(**arguments)
        # What `ags1.cli.paths.expand` has left out.
        left_out = any(getattr(each, "left_out", False) for each in arguments.values())
        return worst_code([code, EXIT_UNPROTECTED]) if left_out else code


def command(
    *,
    needs: str = "",
    epilog: str = "",
    fields: str = "",
    changed: Mapping[str, Any] | None = None,
    subject: str | None = None,
    spark: OnSpark | None = None,
    **parameters: Any,
) -> Callable[[Callable[..., int]], Command]:
    """Make a function a command.

    Parameters
    ----------
    needs : str
        Options in the usage text of which one is required.
    epilog : str
        Help that other commands have too; the docstring has its own.
    fields : str
        Fields of each JSON object.
    changed : mapping, optional
        Options with another help text, or with other settings, than other commands have.
    subject : str, optional
        Field of the JSON object that has the first argument, also if the command fails.
    spark : OnSpark, optional
        The command with ``--spark``.
    parameters : Positional, str or tuple
        What each parameter of the function gets. ``NAME!`` is a required option.
    """
    about: dict[str, Any] = {"needs": needs, "epilog": epilog, "fields": fields, "changed": changed or {}}
    about |= {"subject": subject, "spark": spark}
    return lambda function: Command(function, parameters, about)


def _parts(given: Any) -> tuple[Any, ...]:
    return given if isinstance(given, tuple) else (given,)


def _value(name: str, given: Any, options: Namespace) -> Any:
    """The value of one argument, or the values of several."""
    names = [
        dest
        for each in _parts(given)
        for dest in (
            [each.dest or name] if isinstance(each, Positional) else [one.dest for _, one, _ in options_named(each)]
        )
    ]
    is_one = not isinstance(given, tuple) and (isinstance(given, Positional) or not (" " in given or given in BUNDLES))
    return getattr(options, names[0]) if is_one else Namespace(**{each: getattr(options, each) for each in names})

"""The cost of a launch, said before it starts."""

from __future__ import annotations

import sys

from t5x_like.launching.commands import LaunchError


def bill(count: int, unit: str, price: float, hours: float) -> str:
    """The cost of `count` chips or GPUs at a price an hour for each, as a line for people."""
    many = f"{count} {unit}{'' if count == 1 else 's'}"
    if not price:
        return (
            f"{many}: the price is unknown; give yours with --config.price_per_chip_hour=PRICE "
            "(from your provider's list) and --config.hours=H to see the cost"
        )
    text = f"{many} x {price:,.2f} = {count * price:,.2f} an hour"
    if hours:
        text += f"; {count * price * hours:,.2f} for {hours:g} hours"
    return text + ", in the currency of the price; machines, disks and network come on top"


def agree(count: int, unit: str, *, price: float, hours: float, quiet: bool) -> float:
    """Says the cost and, on a terminal, asks for the price and for agreement.

    Args:
      count: the number of chips or GPUs.
      unit: "chip" or "GPU".
      price: the price of one for an hour; 0 if it was not given.
      hours: the expected hours; 0 if they are not known.
      quiet: whether nothing is asked.

    Returns:
      The price of one for an hour; 0 if it stays unknown.

    Raises:
      LaunchError: the person does not agree.
    """
    asks = not quiet and sys.stdin.isatty()
    if asks and not price:
        answer = input(f"Price of a {unit} for an hour (empty if unknown): ").strip()
        try:
            price = float(answer or 0)
        except ValueError as error:
            raise LaunchError(f"{answer!r} is not a price: give a number, such as 1.20") from error
    print(f"cost: {bill(count, unit, price, hours)}", file=sys.stderr)
    if asks and input("Start? [y/N] ").strip().lower() not in ("y", "yes"):
        raise LaunchError("not started: nothing was run")
    return price

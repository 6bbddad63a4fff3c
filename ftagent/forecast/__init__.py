"""How long the first answer of a launch will take, from rates that were measured on this machine."""

from ftagent.forecast.before import LaunchForecast, before_launch

__all__ = ["LaunchForecast", "before_launch"]

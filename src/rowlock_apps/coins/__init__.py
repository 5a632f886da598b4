"""Coin prices, collected from several markets (the system of document S4).

`rowlock worker --app rowlock_apps.coins:app` runs it; `python -m rowlock_apps.coins --help` feeds it.
"""

from rowlock_apps.coins.app import Coins, app, coins
from rowlock_apps.coins.coin import Coin

__all__ = ["Coin", "Coins", "app", "coins"]

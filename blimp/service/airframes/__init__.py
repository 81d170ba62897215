"""`blimp airframe` and `blimp trim`: judges, makes and balances a ship's description."""

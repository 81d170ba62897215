"""Register maps: addresses, bits, identities and reset values. No conversion code.

Drivers and simulated chips both read these maps, and each writes its own arithmetic from
the datasheet: so they can share a register's address, and no mistake in a formula.

Names are the datasheets'. One class is one chip and only a namespace; it is never made.
"""

"""One driver for each face of the ship: how it is spoken to, rightly and wrongly."""

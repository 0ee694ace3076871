"""The foundation: what a round is, for one client or many, and what all other rooms build on."""

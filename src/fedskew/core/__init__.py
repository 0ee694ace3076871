"""The ground floor: what a round is, for one client or many, and what everything else stands on."""

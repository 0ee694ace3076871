"""What the speed claims of this project rest on."""

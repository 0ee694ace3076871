"""The run is in pyproject.toml; which client a node is, and its data, are in its --node-config; texts are quoted:

    --node-config "client-id=0 data='/path/own.npz'"        its x_train, y_train, perhaps x_test, y_test; or a folder
    --node-config "partition-id=0"                          its part of the run's data set
    --node-config "... state-dir='/path'"                   SCAFFOLD's state of it is kept there, and survives a restart
    --node-config "... device='cuda' data-dir='/path'"      where and with which files this node trains

No message contains label counts, but a server that wants to can compute them from a node's replies, with any method.
A node runs this file as the server sends it, so nothing in it protects the node from the server's operator:
docs/privacy.md of fedskew.
"""

from fedskew.flower import client_app, server_app

client = client_app()  # mods=[...] takes Flower's mods, its local differential privacy among them
server = server_app()  # evaluate=... measures the model your way, wrap=... adds central differential privacy

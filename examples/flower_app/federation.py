"""The run is in pyproject.toml; which client a node is, and its data, are in the node's --node-config:

    client-id=0 data=/path/own.npz      x_train and y_train of its own, or a folder <class>/*.png
    partition-id=0                      its part of the run's data set
    state-dir=/path                     SCAFFOLD's state of this client is kept there, and survives a restart
    device=cuda data-dir=/path          where and with which files this node trains

Label counts never leave a node.
"""

from fedskew.flower import client_app, server_app

client = client_app()  # mods=[...] takes Flower's mods, its local differential privacy among them
server = server_app()  # evaluate=... measures the model your way, wrap=... adds central differential privacy

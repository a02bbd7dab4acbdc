"""Settings that all tests share."""

import torch
from hypothesis import settings

# No deadline: how long one example takes says more about the machine than about the code.
settings.register_profile("upright", deadline=None)
settings.load_profile("upright")

# Tensors are small here: on a busy machine, threads that wait for each other only slow them down.
torch.set_num_threads(1)

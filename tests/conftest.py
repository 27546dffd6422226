"""Settings for all tests."""

import torch

# Two test processes on two cores wait for each other's threads; small tensors gain nothing from more than one.
torch.set_num_threads(1)

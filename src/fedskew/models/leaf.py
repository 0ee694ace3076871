"""LEAF's network for FEMNIST (Caldas et al., 2018).

McMahan's two 5x5 convolutions of 32 and 64 channels with padding that keeps the sides, and 2,048 hidden units:
6,603,710 parameters for 62 classes of 28x28 images.
"""

from torch import nn

from fedskew.models.mcmahan import TwoConvolutions, check_images

_PADDING, _HIDDEN = 2, 2048


def leaf_cnn(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    check_images("leaf_cnn", input_shape, _PADDING)
    return TwoConvolutions(input_shape, num_classes, _PADDING, _HIDDEN)

from jax.nn.initializers import Initializer as Initializer
from jax.nn.initializers import glorot_uniform as glorot_uniform
from jax.nn.initializers import normal as normal
from jax.nn.initializers import ones as ones
from jax.nn.initializers import truncated_normal as truncated_normal
from jax.nn.initializers import variance_scaling as variance_scaling
from jax.nn.initializers import zeros as zeros
